#pragma once

#include "kernels/exact_math.h"

#include <cmath>
#include <cstdint>

namespace rigel::kernels {

struct LogProbParams {
  const float* logits;          // (S, V)
  const std::int32_t* chosen;   // (S)
  const std::int32_t* num_top;  // (S)
  float* chosen_values;         // (S)
  std::int32_t* top_tokens;     // (S, K)
  float* top_values;            // (S, K)
  int num_lanes;
  int vocabulary;
  int max_top;  // K
};

/// Logarithm of the sum of weights relative to the largest. That one has weight 1, so log1p keeps the digits of a sum next to
/// 1, where a token is nearly certain.
static constexpr float log_of_mass(std::uint64_t mass) {
  constexpr std::uint64_t kOne = std::uint64_t{1} << kMassBits;
  return log1pf(static_cast<float>(mass - kOne) / static_cast<float>(kOne));
}

static constexpr float log_prob(float maximum, float log_sum, float logit) {
  return (logit - maximum) - log_sum;
}

}  // namespace rigel::kernels
