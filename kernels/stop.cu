#include "kernels/launch_checks.h"
#include "kernels/stop.h"
#include "kernels/stop_device.h"
#include "kernels/stop_native.h"
#include "tensor/launch.h"

#include <algorithm>
#include <iterator>

namespace rigel::kernels {
namespace {

constexpr int kStopBlock = 128;
constexpr int kThreadsPerUpdate = 4;
constexpr int kThreadsPerRow = 32;

StopRow* stop_rows_of(const DeviceView& stop_rows) {
  check_dense(stop_rows, Dtype::kI32, {-1, kStopRowWords}, "stop_rows");
  RIGEL_CHECK(is_aligned16(stop_rows), "stop_rows must be 16-byte aligned");
  return reinterpret_cast<StopRow*>(stop_rows.raw());
}

LaunchPlan threads_plan(std::int64_t num_threads, const Traffic& traffic) {
  LaunchPlan plan;
  plan.programmatic = true;
  plan.grid = dim3(static_cast<unsigned>(ceil_div(num_threads, kStopBlock)));
  plan.block = dim3(kStopBlock);
  plan.traffic = traffic;
  return plan;
}

/// Returns the buffer's rows.
std::int64_t add_buffer(StopCopyParams& params, const StopBuffer& buffer, Traffic& traffic) {
  const std::int64_t num_rows = buffer.rows.rank() == 0 ? 1 : buffer.rows.dim(0);
  const std::int64_t num_bytes = buffer.rows.num_bytes();
  RIGEL_CHECK(params.num_buffers < kMaxStopBuffers, "more than {} row outputs in a launch",
              kMaxStopBuffers);
  RIGEL_CHECK(buffer.rows.is_contiguous(), "row outputs must be contiguous, got shape {}",
              to_string(buffer.rows.shape()));
  RIGEL_CHECK(buffer.offset_bytes >= 0 && buffer.offset_bytes + num_bytes <= params.entry_bytes,
              "{} bytes of rows at {} do not fit an entry of {}", num_bytes, buffer.offset_bytes,
              params.entry_bytes);
  if (num_bytes == 0) {
    return 0;
  }
  params.buffers[params.num_buffers++] = {
      .source = buffer.rows.raw(),
      .row_bytes = static_cast<std::int32_t>(num_bytes / num_rows),
      .num_rows = static_cast<std::int32_t>(num_rows),
      .offset_bytes = static_cast<std::int32_t>(buffer.offset_bytes)};
  traffic.read_bytes += num_bytes;
  traffic.written_bytes += num_bytes;
  return num_rows;
}

void set_test(StopCopyParams& params, const StopTest& test, std::int64_t records_offset,
              Traffic& traffic) {
  check_dense(test.rows, Dtype::kI32, {-1}, "rows");
  const std::int64_t num_lanes = test.rows.dim(0);
  check_dense(test.tokens, Dtype::kI32, {num_lanes}, "tokens");
  check_dense(test.eos_ids, Dtype::kI32, {-1}, "eos_ids");
  constexpr std::int64_t kRecordBytes = sizeof(StepRecord);
  RIGEL_CHECK(records_offset >= 0 && records_offset % 16 == 0 &&
                  records_offset + num_lanes * kRecordBytes <= params.entry_bytes,
              "{} records at {} do not fit an entry of {} bytes", num_lanes, records_offset,
              params.entry_bytes);
  params.stop_rows = stop_rows_of(test.stop_rows);
  params.eos_ids = test.eos_ids.data<std::int32_t>();
  params.rows = test.rows.data<std::int32_t>();
  params.tokens = test.tokens.data<std::int32_t>();
  params.records_offset = static_cast<std::int32_t>(records_offset);
  params.num_rows = static_cast<std::int32_t>(test.stop_rows.dim(0));
  params.num_eos_ids = static_cast<std::int32_t>(test.eos_ids.dim(0));
  params.num_lanes = static_cast<std::int32_t>(num_lanes);
  const std::int64_t row_bytes = sizeof(StopRow);
  traffic.read_bytes += num_lanes * (row_bytes + 8) + test.eos_ids.num_bytes();
  traffic.written_bytes += num_lanes * (kRecordBytes + 4);
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
  launch<set_stop_rows_kernel<kStopBlock>>(stream, "set_stop_rows", plan, params);
}

void stop_copy(StreamRef stream, const ResultPlace& place, std::span<const StopBuffer> buffers,
               const StopTest* test, std::int64_t records_offset) {
  check_dense(place.ring, Dtype::kU8, {-1, -1}, "ring");
  check_dense(place.step, Dtype::kI64, {1}, "step");
  StopCopyParams params{};
  params.ring = place.ring.raw();
  params.step = place.step.data<std::int64_t>();
  params.entry_bytes = place.ring.dim(1);
  params.num_entries = static_cast<std::int32_t>(place.ring.dim(0));
  RIGEL_CHECK(params.num_entries > 0 && is_aligned16(place.ring) && params.entry_bytes % 16 == 0,
              "ring must have entries of a multiple of 16 bytes, got shape {}",
              to_string(place.ring.shape()));
  Traffic traffic{.read_bytes = 8};
  std::int64_t most_rows = 0;
  for (const StopBuffer& buffer : buffers) {
    most_rows = std::max(most_rows, add_buffer(params, buffer, traffic));
  }
  if (test != nullptr) {
    set_test(params, *test, records_offset, traffic);
    most_rows = std::max<std::int64_t>(most_rows, params.num_lanes);
  }
  if (most_rows == 0) {
    return;
  }
  if (launch_native(stream, "stop_copy", traffic, RIGEL_NATIVE_VARIANT(stop_copy), params)) {
    return;
  }
  launch<stop_copy_kernel<kStopBlock>>(stream, "stop_copy",
                                       threads_plan(most_rows * kThreadsPerRow, traffic), params);
}

}  // namespace rigel::kernels
