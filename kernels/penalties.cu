#include "kernels/launch_checks.h"
#include "kernels/penalties.h"
#include "kernels/penalties_device.h"
#include "kernels/penalties_native.h"
#include "tensor/launch.h"

#include <algorithm>

namespace rigel::kernels {
namespace {

static_assert(kSeenInPrompt == 1 << 30, "penalties_device.h and penalised() use bit 30");

constexpr int kPenaltiesBlock = 256;
/// Blocks along the vocabulary of one lane: enough to spread 128k tokens, few enough that idle lanes cost little.
constexpr std::int64_t kMaxBlocksPerLane = 32;

/// One thread an entry of `entry_bytes`, each reading and writing one word of a larger table.
LaunchPlan entries_plan(std::int64_t num_entries, std::int64_t entry_bytes) {
  LaunchPlan plan;
  plan.programmatic = true;
  plan.grid = dim3(static_cast<unsigned>(ceil_div(num_entries, kPenaltiesBlock)));
  plan.block = dim3(kPenaltiesBlock);
  plan.traffic = {num_entries * (entry_bytes + 4), num_entries * 4, num_entries};
  return plan;
}

LaunchPlan penalties_plan(std::int64_t num_lanes, std::int64_t vocabulary) {
  LaunchPlan plan;
  plan.programmatic = true;
  const std::int64_t blocks = std::min(ceil_div(vocabulary, kPenaltiesBlock), kMaxBlocksPerLane);
  plan.grid = dim3(static_cast<unsigned>(num_lanes), static_cast<unsigned>(blocks));
  plan.block = dim3(kPenaltiesBlock);
  // At most: lanes without penalties move nothing.
  plan.traffic = {8 * num_lanes * vocabulary, 4 * num_lanes * vocabulary,
                  4 * num_lanes * vocabulary};
  return plan;
}

void edit_tokens(StreamRef stream, const char* name, DeviceView logits, ConstDeviceView lanes,
                 ConstDeviceView tokens, const float* bias) {
  check_dense(logits, Dtype::kF32, {-1, -1}, "logits");
  check_dense(lanes, Dtype::kI32, {-1}, "lanes");
  const std::int64_t entries = lanes.dim(0);
  check_dense(tokens, Dtype::kI32, {entries}, "tokens");
  if (entries == 0) {
    return;
  }
  const TokenEditParams params{logits.data<float>(),           lanes.data<std::int32_t>(),
                               tokens.data<std::int32_t>(),    bias,
                               static_cast<int>(entries),      static_cast<int>(logits.dim(0)),
                               static_cast<int>(logits.dim(1))};
  launch<edit_tokens_kernel<kPenaltiesBlock>>(stream, name, entries_plan(entries, 12), params);
}

}  // namespace

void count_prompt(StreamRef stream, DeviceView counts, ConstDeviceView slots,
                  ConstDeviceView tokens) {
  check_dense(counts, Dtype::kI32, {-1, -1}, "counts");
  check_dense(slots, Dtype::kI32, {-1}, "slots");
  const std::int64_t entries = slots.dim(0);
  check_dense(tokens, Dtype::kI32, {entries}, "tokens");
  if (entries == 0) {
    return;
  }
  const CountParams params{counts.data<std::int32_t>(),
                           slots.data<std::int32_t>(),
                           nullptr,
                           tokens.data<std::int32_t>(),
                           nullptr,
                           static_cast<int>(entries),
                           static_cast<int>(counts.dim(1))};
  launch<count_prompt_kernel<kPenaltiesBlock>>(stream, "count_prompt", entries_plan(entries, 8),
                                               params);
}

void count_tokens(StreamRef stream, DeviceView counts, ConstDeviceView slots, ConstDeviceView rows,
                  ConstDeviceView tokens, ConstDeviceView publish) {
  check_dense(counts, Dtype::kI32, {-1, -1}, "counts");
  check_dense(slots, Dtype::kI32, {-1}, "slots");
  check_dense(rows, Dtype::kI32, {-1}, "rows");
  const std::int64_t lanes = rows.dim(0);
  check_dense(tokens, Dtype::kI32, {lanes}, "tokens");
  check_dense(publish, Dtype::kI32, {lanes}, "publish");
  if (lanes == 0) {
    return;
  }
  const CountParams params{counts.data<std::int32_t>(),    slots.data<std::int32_t>(),
                           rows.data<std::int32_t>(),      tokens.data<std::int32_t>(),
                           publish.data<std::int32_t>(),   static_cast<int>(lanes),
                           static_cast<int>(counts.dim(1))};
  launch<count_tokens_kernel<kPenaltiesBlock>>(stream, "count_tokens", entries_plan(lanes, 16),
                                               params);
}

void apply_penalties(StreamRef stream, DeviceView logits, ConstDeviceView counts,
                     ConstDeviceView rows, const PenaltyColumns& columns) {
  check_dense(logits, Dtype::kF32, {-1, -1}, "logits");
  const std::int64_t lanes = logits.dim(0);
  const std::int64_t vocabulary = logits.dim(1);
  check_dense(counts, Dtype::kI32, {-1, vocabulary}, "counts");
  check_dense(rows, Dtype::kI32, {lanes}, "rows");
  check_dense(columns.slots, Dtype::kI32, {-1}, "columns.slots");
  const std::int64_t num_rows = columns.slots.dim(0);
  check_dense(columns.repetition, Dtype::kF32, {num_rows}, "columns.repetition");
  check_dense(columns.presence, Dtype::kF32, {num_rows}, "columns.presence");
  check_dense(columns.frequency, Dtype::kF32, {num_rows}, "columns.frequency");
  if (lanes == 0 || vocabulary == 0) {
    return;
  }
  const PenaltyParams params{logits.data<float>(),
                             counts.data<std::int32_t>(),
                             rows.data<std::int32_t>(),
                             columns.slots.data<std::int32_t>(),
                             columns.repetition.data<float>(),
                             columns.presence.data<float>(),
                             columns.frequency.data<float>(),
                             static_cast<int>(lanes),
                             static_cast<int>(vocabulary)};
  const LaunchPlan plan = penalties_plan(lanes, vocabulary);
  if (launch_native(stream, "apply_penalties", plan.traffic, RIGEL_NATIVE_VARIANT(apply_penalties),
                    params)) {
    return;
  }
  launch<apply_penalties_kernel<kPenaltiesBlock>>(stream, "apply_penalties", plan, params);
}

void apply_logit_bias(StreamRef stream, DeviceView logits, ConstDeviceView lanes,
                      ConstDeviceView tokens, ConstDeviceView bias) {
  check_dense(bias, Dtype::kF32, {lanes.num_elements()}, "bias");
  edit_tokens(stream, "apply_logit_bias", logits, lanes, tokens, bias.data<float>());
}

void bar_tokens(StreamRef stream, DeviceView logits, ConstDeviceView lanes,
                ConstDeviceView tokens) {
  edit_tokens(stream, "bar_tokens", logits, lanes, tokens, nullptr);
}

}  // namespace rigel::kernels
