#pragma once

#include "model/model_config.h"
#include "tensor/buffer.h"
#include "tensor/device.h"

#include <cstdint>

namespace rigel {

/// How large a step can be.
struct StepLimits {
  std::int32_t max_tokens = 0;
  std::int32_t max_lanes = 0;   // requests
  std::int32_t max_length = 0;  // tokens of one request
};

/// Rows whose logits are computed at a time.
inline constexpr std::int32_t kHeadRows = 64;
/// Best tokens reported a position of a scored text, at most.
inline constexpr std::int32_t kMaxTopLogprobs = 64;
/// Alternatives to a sampled token that a request may ask for: OpenAI's limit.
inline constexpr std::int32_t kMaxSampledLogprobs = 20;

/// Everything that a transformer's forward writes between its input and its outputs, sized once for the largest step: a step
/// allocates nothing and finds the same addresses each time. T tokens, B head rows, in the order of their use.
struct TransformerBuffers {
  TransformerBuffers(Device& device, const ModelConfig& config, Dtype dtype,
                     const StepLimits& limits);

  DeviceBuffer ids;                 // (T) i32
  DeviceBuffer angles;              // (T, R / 2, 2) f32
  DeviceBuffer residual;            // (T, C) f32
  DeviceBuffer normed;              // (T, C)
  DeviceBuffer qkv;                 // (T, (H + 2 G) D)
  DeviceBuffer attention;           // (T, H D)
  DeviceBuffer decode_workspace;    // u8
  DeviceBuffer gate_up;             // (T, 2 I)
  DeviceBuffer gated;               // (T, I)
  DeviceBuffer head_residual;       // (B, C) f32
  DeviceBuffer head_normed;         // (B, C)
  DeviceBuffer logits;              // (B, V) f32
  DeviceBuffer score_logprobs;      // (T) f32
  DeviceBuffer score_top_ids;       // (T, K) i32
  DeviceBuffer score_top_logprobs;  // (T, K) f32

  [[nodiscard]] std::int64_t num_bytes() const;
  /// B: at least one block of scored rows, and every lane that can sample.
  [[nodiscard]] static std::int32_t head_rows(const StepLimits& limits) {
    return limits.max_lanes > kHeadRows ? limits.max_lanes : kHeadRows;
  }
};

}  // namespace rigel
