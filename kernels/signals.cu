#include "kernels/launch_checks.h"
#include "kernels/row_warps_plan.h"
#include "kernels/signals.h"
#include "kernels/signals_device.h"
#include "kernels/signals_native.h"
#include "tensor/launch.h"

#include <algorithm>
#include <cstring>

namespace rigel::kernels {
namespace {

RowCopy row_copy(const RowTensor& to) {
  RIGEL_CHECK(to.rows.rank() >= 1 && to.row >= 0 && to.row < to.rows.dim(0),
              "row {} of a batch tensor of shape {}", to.row, to_string(to.rows.shape()));
  const ConstDeviceView row = to.rows.select(0, to.row);
  RIGEL_CHECK(row.is_contiguous() && to.tensor.is_contiguous() &&
                  row.dtype() == to.tensor.dtype() &&
                  (row.shape() == to.tensor.shape() ||
                   to.rows.slice(0, to.row, 1).shape() == to.tensor.shape()),
              "a row of {} {} does not make a tensor of {} {}", name_of(row.dtype()),
              to_string(row.shape()), name_of(to.tensor.dtype()), to_string(to.tensor.shape()));
  return {to.tensor.raw(), row.raw(), row.num_bytes()};
}

}  // namespace

RowTensorTable fill_row_tensor_table(std::span<std::int64_t> host, ConstDeviceView device,
                                     std::span<const RowTensor> tensors) {
  RIGEL_CHECK(host.size() % kRowCopyWords == 0 && host.size() >= tensors.size() * kRowCopyWords &&
                  device.num_elements() == static_cast<std::int64_t>(host.size()),
              "a table for {} tensors has {} words on the host and {} on the device",
              tensors.size(), host.size(), device.num_elements());
  const std::size_t num_entries = host.size() / kRowCopyWords;
  RowTensorTable table;
  table.copies =
      device.reshape({static_cast<std::int64_t>(num_entries), std::int64_t{kRowCopyWords}});
  for (std::size_t index = 0; index < num_entries; ++index) {
    const RowCopy copy = index < tensors.size() ? row_copy(tensors[index]) : RowCopy{};
    std::memcpy(&host[index * kRowCopyWords], &copy, sizeof copy);
    table.widest_row_bytes = std::max(table.widest_row_bytes, copy.num_bytes);
    table.total_bytes += copy.num_bytes;
  }
  return table;
}

void materialize_rows(StreamRef stream, const RowTensorTable& table) {
  check_dense(table.copies, Dtype::kI64, {-1, kRowCopyWords}, "table.copies");
  if (table.copies.dim(0) == 0) {
    return;
  }
  const MaterializeRowsParams params{reinterpret_cast<const RowCopy*>(table.copies.raw()),
                                     static_cast<std::int32_t>(table.copies.dim(0))};
  const LaunchPlan plan =
      row_warps_plan(table.copies.dim(0), table.widest_row_bytes, 1,
                     {table.total_bytes + table.copies.num_bytes(), table.total_bytes, 0});
  if (launch_native(stream, "materialize_rows", plan.traffic,
                    RIGEL_NATIVE_VARIANT(materialize_rows), params)) {
    return;
  }
  launch<materialize_rows_kernel<kRowWarpsBlock>>(stream, "materialize_rows", plan, params);
}

}  // namespace rigel::kernels
