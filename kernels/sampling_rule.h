#pragma once

#include "kernels/exact_math.h"

// The arithmetic of sampling, shared by the device text and the native variant: both must choose the same tokens.

namespace rigel::kernels {

/// How logits of a lane become weights. The largest logit has weight 1.
struct SamplingRule {
  float maximum;      // the largest logit; finite
  float temperature;  // > 0
  float min_weight;   // min_p in [0, 1]
};

static constexpr SamplingRule sampling_rule(float maximum, float temperature, float min_p) {
  const float floored = min_p > 0.0f ? min_p : 0.0f;
  return {maximum, temperature, floored < 1.0f ? floored : 1.0f};
}

/// Whether a lane takes the first largest logit.
static constexpr bool is_greedy(float temperature, std::int32_t top_k) {
  return !(temperature > 0.0f) || top_k == 1;
}

static constexpr bool has_top_p(float top_p) {
  return top_p > 0.0f && top_p < 1.0f;
}

/// Distance below the largest logit in units of the temperature: the negative exponent of the weight.
static constexpr float distance_of(const SamplingRule& rule, float logit) {
  return (rule.maximum - logit) / rule.temperature;
}

/// The token's mass; 0 where it is barred, below min_p or too small to matter.
static constexpr std::uint64_t token_mass(const SamplingRule& rule, float logit) {
  constexpr float kLowest = -3.402823466e38f;
  const float weight = exact_exp(-distance_of(rule, logit));
  return logit < kLowest || weight < rule.min_weight ? 0 : mass_of(weight);
}

/// The mass that the kept tokens must reach: a token stays if the mass before it is less than top_p of the total.
static constexpr std::uint64_t nucleus_mass(std::uint64_t total, float top_p) {
  const double wanted = static_cast<double>(total) * static_cast<double>(top_p);
  const std::uint64_t floor = static_cast<std::uint64_t>(wanted);
  const std::uint64_t target = static_cast<double>(floor) < wanted ? floor + 1 : floor;
  return target < 1 ? 1 : (target > total ? total : target);
}

/// Logit and id as one integer whose descending order is that of sampling: larger logits first, then lower ids.
static constexpr std::uint64_t order_key(float logit, int token) {
  // Adding zero makes -0 and +0 the same logit.
  return (static_cast<std::uint64_t>(ordered_bits(logit + 0.0f)) << 32) |
         (0xffffffffu - static_cast<std::uint32_t>(token));
}

/// The token of an order key.
static constexpr int token_of(std::uint64_t key) {
  return static_cast<int>(0xffffffffu - static_cast<std::uint32_t>(key));
}

/// The leading tokens of a lane in the order of sampling.
struct Selection {
  std::uint64_t cutoff;  // the order key of the last of them, or any between it and the next
  std::uint64_t mass;
  std::uint32_t num_tokens;
};

}  // namespace rigel::kernels
