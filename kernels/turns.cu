#include "kernels/launch_checks.h"
#include "kernels/turns.h"
#include "kernels/turns_device.h"
#include "kernels/turns_native.h"
#include "tensor/launch.h"

namespace rigel::kernels {
namespace {

constexpr int kEndTurnBlock = 128;

}  // namespace

void end_turn(StreamRef stream, const TurnColumns& columns, const StopTest& test,
              LoopCondition condition) {
  check_dense(test.rows, Dtype::kI32, {-1}, "rows");
  const std::int64_t num_lanes = test.rows.dim(0);
  check_dense(test.tokens, Dtype::kI32, {num_lanes}, "tokens");
  check_dense(test.stop_rows, Dtype::kI32, {-1, kStopRowWords}, "stop_rows");
  check_dense(test.eos_ids, Dtype::kI32, {-1}, "eos_ids");
  check_dense(columns.step, Dtype::kI64, {1}, "step");
  check_dense(columns.last_step, Dtype::kI64, {1}, "last_step");
  const auto num_counting = static_cast<std::int64_t>(columns.counting.size());
  RIGEL_CHECK(num_counting <= kMaxCountingColumns, "more than {} columns that count: {}",
              kMaxCountingColumns, num_counting);
  EndTurnParams params{};
  for (const DeviceView& column : columns.counting) {
    check_dense(column, Dtype::kI32, {num_lanes}, "a counting column");
    params.counting[params.num_counting++] = column.data<std::int32_t>();
  }
  params.step = columns.step.data<std::int64_t>();
  params.last_step = columns.last_step.data<std::int64_t>();
  params.stop_rows = reinterpret_cast<const StopRow*>(test.stop_rows.raw());
  params.eos_ids = test.eos_ids.data<std::int32_t>();
  params.rows = test.rows.data<std::int32_t>();
  params.tokens = test.tokens.data<std::int32_t>();
  params.condition = condition;
  params.num_rows = static_cast<std::int32_t>(test.stop_rows.dim(0));
  params.num_eos_ids = static_cast<std::int32_t>(test.eos_ids.dim(0));
  params.num_lanes = static_cast<std::int32_t>(num_lanes);

  constexpr std::int64_t kLaneBytes = sizeof(StopRow) + 8;  // with its row and its token
  LaunchPlan plan;
  plan.programmatic = true;
  plan.grid = dim3(1);
  plan.block = dim3(kEndTurnBlock);
  plan.traffic = {
      .read_bytes = num_lanes * (kLaneBytes + 4 * num_counting) + test.eos_ids.num_bytes() + 16,
      .written_bytes = num_lanes * 4 * num_counting + 8,
      .flops = 0};
  if (launch_native(stream, "end_turn", plan.traffic, RIGEL_NATIVE_VARIANT(end_turn), params)) {
    return;
  }
  launch<end_turn_kernel<kEndTurnBlock>>(stream, "end_turn", plan, params);
}

}  // namespace rigel::kernels
