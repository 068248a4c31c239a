#include "model/transformer_buffers.h"

#include "kernels/attention.h"

namespace rigel {

TransformerBuffers::TransformerBuffers(Device& device, const ModelConfig& config, Dtype dtype,
                                       const StepLimits& limits)
    : ids(device, Dtype::kI32, {limits.max_tokens}),
      angles(device, Dtype::kF32, {limits.max_tokens, config.rope.rotary_dim / 2, 2}),
      residual(device, Dtype::kF32, {limits.max_tokens, config.hidden_size}),
      normed(device, dtype, {limits.max_tokens, config.hidden_size}),
      qkv(device, dtype,
          {limits.max_tokens, (config.num_heads + 2 * config.num_kv_heads) * config.head_dim}),
      attention(device, dtype, {limits.max_tokens, config.num_heads * config.head_dim}),
      decode_workspace(device, Dtype::kU8,
                       {kernels::attend_decode_workspace_bytes(limits.max_lanes, limits.max_length,
                                                               config.num_heads, config.head_dim)}),
      gate_up(device, dtype, {limits.max_tokens, 2 * config.intermediate_size}),
      gated(device, dtype, {limits.max_tokens, config.intermediate_size}),
      head_residual(device, Dtype::kF32, {head_rows(limits), config.hidden_size}),
      head_normed(device, dtype, {head_rows(limits), config.hidden_size}),
      logits(device, Dtype::kF32, {head_rows(limits), config.vocab_size}),
      score_logprobs(device, Dtype::kF32, {limits.max_tokens}),
      score_top_ids(device, Dtype::kI32, {limits.max_tokens, kMaxTopLogprobs}),
      score_top_logprobs(device, Dtype::kF32, {limits.max_tokens, kMaxTopLogprobs}) {}

std::int64_t TransformerBuffers::num_bytes() const {
  std::int64_t total = 0;
  for (const DeviceBuffer* buffer :
       {&ids, &angles, &residual, &normed, &qkv, &attention, &decode_workspace, &gate_up, &gated,
        &head_residual, &head_normed, &logits, &score_logprobs, &score_top_ids,
        &score_top_logprobs}) {
    total += buffer->num_bytes();
  }
  return total;
}

}  // namespace rigel
