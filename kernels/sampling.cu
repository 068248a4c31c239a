#include "kernels/launch_checks.h"
#include "kernels/sampling.h"
#include "kernels/sampling_device.h"
#include "kernels/sampling_native.h"
#include "tensor/launch.h"

namespace rigel::kernels {
namespace {

static_assert(kSampled == 0 && kLogitsNotFinite == 1, "sampling_device.h writes the numbers");

/// One block a lane; at 40 registers a thread an SM holds three of them.
constexpr int kLaneBlock = 512;
constexpr int kSamplingBlock = 128;

LaunchPlan lanes_plan(std::int64_t num_lanes, std::int64_t vocabulary) {
  LaunchPlan plan;
  plan.programmatic = true;
  plan.grid = dim3(static_cast<unsigned>(num_lanes));
  plan.block = dim3(kLaneBlock);
  // Once from memory; later passes come from cache.
  plan.traffic = {num_lanes * vocabulary * 4, num_lanes * 8, num_lanes * vocabulary};
  return plan;
}

void check_logits(ConstDeviceView logits) {
  check_dense(logits, Dtype::kF32, {-1, -1}, "logits");
  RIGEL_CHECK(logits.dim(1) >= 1 && logits.dim(1) <= kMaxVocabulary,
              "a vocabulary has 1 to 524288 tokens, got {}", logits.dim(1));
  RIGEL_CHECK(is_aligned16(logits), "logits must be 16-byte aligned, got vocabulary {}",
              logits.dim(1));
}

void check_columns(const SamplingColumns& columns) {
  check_dense(columns.temperature, Dtype::kF32, {-1}, "columns.temperature");
  const std::int64_t num_rows = columns.temperature.dim(0);
  check_dense(columns.top_k, Dtype::kI32, {num_rows}, "columns.top_k");
  check_dense(columns.top_p, Dtype::kF32, {num_rows}, "columns.top_p");
  check_dense(columns.min_p, Dtype::kF32, {num_rows}, "columns.min_p");
  check_dense(columns.seeds, Dtype::kI64, {num_rows}, "columns.seeds");
}

}  // namespace

void sample(StreamRef stream, const SampleOutputs& outputs, ConstDeviceView logits,
            ConstDeviceView rows, ConstDeviceView positions, const SamplingColumns& columns,
            std::uint32_t sampler_id) {
  check_dense(rows, Dtype::kI32, {-1}, "rows");
  const std::int64_t lanes = rows.dim(0);
  if (lanes == 0) {
    return;
  }
  check_logits(logits);
  check_dense(logits, Dtype::kF32, {lanes, logits.dim(1)}, "logits");
  check_dense(positions, Dtype::kI32, {lanes}, "positions");
  check_dense(outputs.tokens, Dtype::kI32, {lanes}, "outputs.tokens");
  check_dense(outputs.flags, Dtype::kI32, {lanes}, "outputs.flags");
  check_columns(columns);
  SampleParams params{logits.data<float>(),
                      rows.data<std::int32_t>(),
                      positions.data<std::int32_t>(),
                      columns.temperature.data<float>(),
                      columns.top_k.data<std::int32_t>(),
                      columns.top_p.data<float>(),
                      columns.min_p.data<float>(),
                      columns.seeds.data<std::int64_t>(),
                      outputs.tokens.data<std::int32_t>(),
                      outputs.flags.data<std::int32_t>(),
                      nullptr,
                      static_cast<int>(lanes),
                      static_cast<int>(logits.dim(1)),
                      sampler_id};
  if (outputs.num_kept.defined()) {
    check_dense(outputs.num_kept, Dtype::kI32, {lanes}, "outputs.num_kept");
    params.num_kept = outputs.num_kept.data<std::int32_t>();
  }
  const LaunchPlan plan = lanes_plan(lanes, logits.dim(1));
  if (launch_native(stream, "sample", plan.traffic, RIGEL_NATIVE_VARIANT(sample), params)) {
    return;
  }
  launch<sample_kernel<kLaneBlock>>(stream, "sample", plan, params);
}

void argmax(StreamRef stream, DeviceView tokens, ConstDeviceView logits) {
  check_dense(tokens, Dtype::kI32, {-1}, "tokens");
  const std::int64_t lanes = tokens.dim(0);
  if (lanes == 0) {
    return;
  }
  check_logits(logits);
  check_dense(logits, Dtype::kF32, {lanes, logits.dim(1)}, "logits");
  const ArgmaxParams params{logits.data<float>(), tokens.data<std::int32_t>(),
                            static_cast<int>(lanes), static_cast<int>(logits.dim(1))};
  const LaunchPlan plan = lanes_plan(lanes, logits.dim(1));
  if (launch_native(stream, "argmax", plan.traffic, RIGEL_NATIVE_VARIANT(argmax), params)) {
    return;
  }
  launch<argmax_kernel<kLaneBlock>>(stream, "argmax", plan, params);
}

void publish_tokens(StreamRef stream, DeviceView last_token, ConstDeviceView tokens,
                    ConstDeviceView rows, ConstDeviceView publish) {
  check_dense(last_token, Dtype::kI32, {-1}, "last_token");
  check_dense(rows, Dtype::kI32, {-1}, "rows");
  const std::int64_t lanes = rows.dim(0);
  check_dense(tokens, Dtype::kI32, {lanes}, "tokens");
  check_dense(publish, Dtype::kI32, {lanes}, "publish");
  if (lanes == 0) {
    return;
  }
  const PublishParams params{last_token.data<std::int32_t>(), tokens.data<std::int32_t>(),
                             rows.data<std::int32_t>(), publish.data<std::int32_t>(),
                             static_cast<int>(lanes)};
  LaunchPlan plan;
  plan.programmatic = true;
  plan.grid = dim3(static_cast<unsigned>(ceil_div(lanes, kSamplingBlock)));
  plan.block = dim3(kSamplingBlock);
  plan.traffic = {12 * lanes, 4 * lanes, 0};
  if (launch_native(stream, "publish_tokens", plan.traffic, RIGEL_NATIVE_VARIANT(publish_tokens),
                    params)) {
    return;
  }
  launch<publish_tokens_kernel<kSamplingBlock>>(stream, "publish_tokens", plan, params);
}

}  // namespace rigel::kernels
