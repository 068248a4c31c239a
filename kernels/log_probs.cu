#include "kernels/launch_checks.h"
#include "kernels/log_probs.h"
#include "kernels/log_probs_device.h"
#include "kernels/log_probs_native.h"
#include "tensor/launch.h"

namespace rigel::kernels {
namespace {

/// One block a lane, as in sampling.
constexpr int kLogProbsBlock = 512;

LaunchPlan log_probs_plan(std::int64_t num_lanes, std::int64_t vocabulary, std::int64_t max_top) {
  LaunchPlan plan;
  plan.programmatic = true;
  plan.grid = dim3(static_cast<unsigned>(num_lanes));
  plan.block = dim3(kLogProbsBlock);
  // Once from memory; later passes come from cache.
  plan.traffic = {num_lanes * (vocabulary * 4 + 8), num_lanes * (4 + max_top * 8),
                  num_lanes * vocabulary * 20};
  return plan;
}

}  // namespace

void log_probs(StreamRef stream, const LogProbOutputs& outputs, ConstDeviceView logits,
               ConstDeviceView chosen, ConstDeviceView num_top) {
  check_dense(logits, Dtype::kF32, {-1, -1}, "logits");
  const std::int64_t lanes = logits.dim(0);
  const std::int64_t vocabulary = logits.dim(1);
  check_dense(chosen, Dtype::kI32, {lanes}, "chosen");
  check_dense(num_top, Dtype::kI32, {lanes}, "num_top");
  check_dense(outputs.chosen, Dtype::kF32, {lanes}, "outputs.chosen");
  check_dense(outputs.top_tokens, Dtype::kI32, {lanes, -1}, "outputs.top_tokens");
  const std::int64_t max_top = outputs.top_tokens.dim(1);
  check_dense(outputs.top_values, Dtype::kF32, {lanes, max_top}, "outputs.top_values");
  RIGEL_CHECK(max_top <= kMaxTopLogProbs, "at most 64 alternatives a lane, got {}", max_top);
  if (lanes == 0) {
    return;
  }
  RIGEL_CHECK(vocabulary >= 1 && vocabulary <= kMaxVocabulary,
              "a vocabulary has 1 to 524288 tokens, got {}", vocabulary);
  RIGEL_CHECK(is_aligned16(logits), "logits must be 16-byte aligned, got vocabulary {}",
              vocabulary);
  const LogProbParams params{logits.data<float>(),
                             chosen.data<std::int32_t>(),
                             num_top.data<std::int32_t>(),
                             outputs.chosen.data<float>(),
                             outputs.top_tokens.data<std::int32_t>(),
                             outputs.top_values.data<float>(),
                             static_cast<int>(lanes),
                             static_cast<int>(vocabulary),
                             static_cast<int>(max_top)};
  const LaunchPlan plan = log_probs_plan(lanes, vocabulary, max_top);
  if (launch_native(stream, "log_probs", plan.traffic, RIGEL_NATIVE_VARIANT(log_probs), params)) {
    return;
  }
  launch<log_probs_kernel<kLogProbsBlock, kMaxTopLogProbs>>(stream, "log_probs", plan, params);
}

}  // namespace rigel::kernels
