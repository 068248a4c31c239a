#include "kernels/launch_checks.h"
#include "kernels/row_warps_plan.h"
#include "kernels/rows.h"
#include "kernels/rows_device.h"
#include "kernels/rows_native.h"
#include "tensor/launch.h"

#include <algorithm>
#include <cstring>

namespace rigel::kernels {
namespace {

std::int64_t row_bytes_of(const ConstDeviceView& view) {
  return view.dim(0) == 0 ? 0 : view.num_bytes() / view.dim(0);
}

void check_same_rows(const ConstDeviceView& target, const ConstDeviceView& source) {
  bool same =
      target.dtype() == source.dtype() && target.rank() == source.rank() && target.rank() >= 1;
  for (int dim = 1; same && dim < target.rank(); ++dim) {
    same = target.dim(dim) == source.dim(dim);
  }
  RIGEL_CHECK(same, "rows differ in dtype or shape: {} {} and {} {}", name_of(target.dtype()),
              to_string(target.shape()), name_of(source.dtype()), to_string(source.shape()));
}

/// Bytes from one row to the next; the elements of a row must lie densely.
std::int64_t row_stride_of(const ConstDeviceView& view, const char* name) {
  RIGEL_CHECK(view.dim(0) == 0 || view.select(0, 0).is_contiguous(),
              "the rows of {} must be dense, got shape {}", name, to_string(view.shape()));
  return view.stride(0) * static_cast<std::int64_t>(size_of(view.dtype()));
}

SpliceEntry splice_entry(const RowSplice& splice) {
  const bool has_fresh = splice.fresh.defined();
  check_same_rows(splice.target, splice.source);
  if (has_fresh) {
    check_same_rows(splice.target, splice.fresh);
  }
  return {.target = splice.target.raw(),
          .source = splice.source.raw(),
          .fresh = splice.fresh.raw(),
          .row_bytes = row_bytes_of(splice.target),
          .target_stride = row_stride_of(splice.target, "target"),
          .source_stride = row_stride_of(splice.source, "source"),
          .fresh_stride = has_fresh ? row_stride_of(splice.fresh, "fresh") : 0,
          .num_source_rows = static_cast<std::int32_t>(splice.source.dim(0)),
          .num_fresh_rows = has_fresh ? static_cast<std::int32_t>(splice.fresh.dim(0)) : 0};
}

}  // namespace

void gather_rows(StreamRef stream, DeviceView out, ConstDeviceView in, ConstDeviceView indices) {
  check_same_rows(out, in);
  RIGEL_CHECK(out.is_contiguous() && in.is_contiguous(), "rows are gathered between dense tensors");
  check_dense(indices, Dtype::kI32, {out.dim(0)}, "indices");
  const std::int64_t num_rows = out.dim(0);
  if (num_rows == 0) {
    return;
  }
  const GatherRowsParams params{out.raw(),
                                in.raw(),
                                indices.data<std::int32_t>(),
                                row_bytes_of(out),
                                static_cast<std::int32_t>(num_rows),
                                static_cast<std::int32_t>(in.dim(0))};
  LaunchPlan plan =
      row_warps_plan(num_rows, params.row_bytes, 1,
                     {num_rows * (params.row_bytes + 4), num_rows * params.row_bytes, 0});
  plan.programmatic = true;
  if (launch_native(stream, "gather_rows", plan.traffic, RIGEL_NATIVE_VARIANT(gather_rows),
                    params)) {
    return;
  }
  launch<gather_rows_kernel<kRowWarpsBlock>>(stream, "gather_rows", plan, params);
}

SpliceTable fill_splice_table(std::span<std::int64_t> host, ConstDeviceView device,
                              std::span<const RowSplice> splices) {
  RIGEL_CHECK(host.size() % kSpliceEntryWords == 0 &&
                  host.size() >= splices.size() * kSpliceEntryWords &&
                  device.num_elements() == static_cast<std::int64_t>(host.size()),
              "a table for {} signals has {} words on the host and {} on the device",
              splices.size(), host.size(), device.num_elements());
  const std::size_t num_entries = host.size() / kSpliceEntryWords;
  SpliceTable table;
  table.entries =
      device.reshape({static_cast<std::int64_t>(num_entries), std::int64_t{kSpliceEntryWords}});
  for (std::size_t signal = 0; signal < num_entries; ++signal) {
    const SpliceEntry entry =
        signal < splices.size() ? splice_entry(splices[signal]) : SpliceEntry{};
    std::memcpy(&host[signal * kSpliceEntryWords], &entry, sizeof entry);
    table.widest_row_bytes = std::max(table.widest_row_bytes, entry.row_bytes);
    table.lane_bytes += entry.row_bytes;
  }
  return table;
}

void splice_rows(StreamRef stream, const SpliceTable& table, ConstDeviceView source_rows) {
  check_dense(table.entries, Dtype::kI64, {-1, kSpliceEntryWords}, "table.entries");
  const std::int64_t num_signals = table.entries.dim(0);
  const bool shared = source_rows.rank() == 1;
  if (shared) {
    check_dense(source_rows, Dtype::kI32, {-1}, "source_rows");
  } else {
    check_dense(source_rows, Dtype::kI32, {num_signals, -1}, "source_rows");
  }
  const std::int64_t num_lanes = source_rows.dim(shared ? 0 : 1);
  if (num_signals == 0 || num_lanes == 0) {
    return;
  }
  const SpliceRowsParams params{reinterpret_cast<const SpliceEntry*>(table.entries.raw()),
                                source_rows.data<std::int32_t>(), shared ? 0 : num_lanes,
                                static_cast<std::int32_t>(num_signals),
                                static_cast<std::int32_t>(num_lanes)};
  // At most: lanes without a source move nothing.
  const std::int64_t index_bytes = source_rows.num_bytes() + table.entries.num_bytes();
  const LaunchPlan plan =
      row_warps_plan(num_lanes, table.widest_row_bytes, num_signals,
                     {num_lanes * table.lane_bytes + index_bytes, num_lanes * table.lane_bytes, 0});
  if (launch_native(stream, "splice_rows", plan.traffic, RIGEL_NATIVE_VARIANT(splice_rows),
                    params)) {
    return;
  }
  launch<splice_rows_kernel<kRowWarpsBlock>>(stream, "splice_rows", plan, params);
}

}  // namespace rigel::kernels
