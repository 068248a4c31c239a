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

constexpr int kBlock = 128;

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

/// A column of the state by row: its address, or null where it is not wanted.
std::int32_t* column_of(const DeviceView& column, std::int64_t num_rows, const char* name) {
  if (!column.defined()) {
    return nullptr;
  }
  check_tensor(column, Dtype::kI32, {num_rows}, name);
  return column.data<std::int32_t>();
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

void advance_rows(StreamRef stream, const AdvanceColumns& columns, const AdvanceLanes& lanes) {
  check_dense(lanes.rows, Dtype::kI32, {-1}, "rows");
  const std::int64_t num_lanes = lanes.rows.dim(0);
  std::int64_t num_rows = 0;
  for (const DeviceView& column : {columns.positions, columns.loop_counters, columns.last_tokens}) {
    num_rows = column.defined() ? column.dim(0) : num_rows;
  }
  AdvanceRowsParams params{};
  params.positions = column_of(columns.positions, num_rows, "positions");
  params.loop_counters = column_of(columns.loop_counters, num_rows, "loop_counters");
  params.counter_stride = params.loop_counters == nullptr ? 0 : columns.loop_counters.stride(0);
  params.last_tokens = column_of(columns.last_tokens, num_rows, "last_tokens");
  RIGEL_CHECK((params.positions == nullptr || columns.positions.is_contiguous()) &&
                  (params.last_tokens == nullptr || columns.last_tokens.is_contiguous()),
              "positions and last_tokens must be contiguous");
  params.rows = lanes.rows.data<std::int32_t>();
  if (params.last_tokens != nullptr) {
    check_dense(lanes.tokens, Dtype::kI32, {num_lanes}, "tokens");
    params.tokens = lanes.tokens.data<std::int32_t>();
  }
  if (lanes.spans.defined()) {
    check_dense(lanes.spans, Dtype::kI32, {num_lanes}, "spans");
    params.spans = lanes.spans.data<std::int32_t>();
  }
  params.num_rows = static_cast<std::int32_t>(num_rows);
  params.num_lanes = static_cast<std::int32_t>(num_lanes);
  // What is not wanted is not touched.
  const std::int64_t state_bytes =
      (params.positions != nullptr ? 4 : 0) + (params.loop_counters != nullptr ? 4 : 0);
  const std::int64_t lane_bytes =
      4 + (params.tokens != nullptr ? 4 : 0) + (params.spans != nullptr ? 4 : 0);
  LaunchPlan plan;
  plan.grid = dim3(static_cast<unsigned>(ceil_div(num_lanes, kBlock)));
  plan.block = dim3(kBlock);
  plan.traffic = {num_lanes * (lane_bytes + state_bytes),
                  num_lanes * (state_bytes + (params.last_tokens != nullptr ? 4 : 0)), 0};
  launch<advance_rows_kernel<kBlock>>(stream, "advance_rows", plan, params);
}

}  // namespace rigel::kernels
