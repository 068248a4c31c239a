#include "kernels/launch_checks.h"
#include "kernels/stop.h"
#include "kernels/stop_device.h"
#include "kernels/stop_native.h"
#include "tensor/launch.h"

#include <algorithm>
#include <iterator>

namespace rigel::kernels {
namespace {

/// Enough threads for a decode step in few blocks; a block is a lone OS thread on the CPU device.
constexpr int kBlock = 128;
constexpr int kThreadsPerUpdate = 4;

StopRow* stop_rows_of(const DeviceView& stop_rows) {
  check_dense(stop_rows, Dtype::kI32, {-1, kStopRowWords}, "stop_rows");
  RIGEL_CHECK(is_aligned16(stop_rows), "stop_rows must be 16-byte aligned");
  return reinterpret_cast<StopRow*>(stop_rows.raw());
}

LaunchPlan threads_plan(std::int64_t num_threads, const Traffic& traffic) {
  LaunchPlan plan;
  plan.grid = dim3(static_cast<unsigned>(ceil_div(num_threads, kBlock)));
  plan.block = dim3(kBlock);
  plan.traffic = traffic;
  return plan;
}

}  // namespace

void set_stop_ids(StopRow& row, std::span<const std::int32_t> ids) {
  const std::size_t num_kept = std::min(ids.size(), std::size(row.stop_ids));
  std::fill(std::copy_n(ids.begin(), num_kept, row.stop_ids), std::end(row.stop_ids), -1);
  row.options =
      num_kept < ids.size() ? row.options | kListContinues : row.options & ~kListContinues;
}

void set_stop_rows(StreamRef stream, DeviceView stop_rows, ConstDeviceView rows,
                   ConstDeviceView values) {
  check_dense(rows, Dtype::kI32, {-1}, "rows");
  const std::int64_t num_updates = rows.dim(0);
  check_dense(values, Dtype::kI32, {num_updates, kStopRowWords}, "values");
  RIGEL_CHECK(is_aligned16(values), "values must be 16-byte aligned");
  const StopRowUpdateParams params{
      stop_rows_of(stop_rows), reinterpret_cast<const StopRow*>(values.raw()),
      rows.data<std::int32_t>(), static_cast<std::int32_t>(stop_rows.dim(0)),
      static_cast<std::int32_t>(num_updates)};
  const std::int64_t row_bytes = sizeof(StopRow);
  const LaunchPlan plan = threads_plan(num_updates * kThreadsPerUpdate,
                                       {num_updates * (row_bytes + 4), num_updates * row_bytes, 0});
  launch<set_stop_rows_kernel<kBlock>>(stream, "set_stop_rows", plan, params);
}

void stop_copy(StreamRef stream, DeviceView ring, DeviceView stop_rows, ConstDeviceView eos_ids,
               const StepTokens& sampled) {
  check_dense(sampled.rows, Dtype::kI32, {-1}, "rows");
  const std::int64_t num_lanes = sampled.rows.dim(0);
  check_dense(sampled.tokens, Dtype::kI32, {num_lanes}, "tokens");
  check_dense(sampled.step, Dtype::kI64, {1}, "step");
  check_dense(eos_ids, Dtype::kI32, {-1}, "eos_ids");
  check_dense(ring, Dtype::kI64, {-1, -1, kStepRecordWords}, "ring");
  RIGEL_CHECK(ring.dim(0) > 0 && ring.dim(1) >= num_lanes && is_aligned16(ring),
              "a ring of {} takes no step of {} lanes", to_string(ring.shape()), num_lanes);
  const StopCopyParams params{.ring = reinterpret_cast<StepRecord*>(ring.raw()),
                              .stop_rows = stop_rows_of(stop_rows),
                              .eos_ids = eos_ids.data<std::int32_t>(),
                              .rows = sampled.rows.data<std::int32_t>(),
                              .tokens = sampled.tokens.data<std::int32_t>(),
                              .step = sampled.step.data<std::int64_t>(),
                              .num_entries = static_cast<std::int32_t>(ring.dim(0)),
                              .max_lanes = static_cast<std::int32_t>(ring.dim(1)),
                              .num_rows = static_cast<std::int32_t>(stop_rows.dim(0)),
                              .num_eos_ids = static_cast<std::int32_t>(eos_ids.dim(0)),
                              .num_lanes = static_cast<std::int32_t>(num_lanes)};
  if (num_lanes == 0) {
    return;
  }
  const std::int64_t read_bytes = sizeof(StopRow) + 2 * sizeof(std::int32_t);
  const std::int64_t written_bytes = sizeof(StepRecord) + sizeof(std::int32_t);
  const LaunchPlan plan = threads_plan(
      num_lanes, {num_lanes * read_bytes + eos_ids.num_bytes() + 8, num_lanes * written_bytes, 0});
  if (launch_native(stream, "stop_copy", plan.traffic, RIGEL_NATIVE_VARIANT(stop_copy), params)) {
    return;
  }
  launch<stop_copy_kernel<kBlock>>(stream, "stop_copy", plan, params);
}

}  // namespace rigel::kernels
