#pragma once

#include <cstdint>
#include <vector>

// Sampling in double precision by sorting, sharing nothing with the kernels.

namespace rigel::kernels {

/// One lane's parameters, as SamplingColumns has them.
struct SamplingCase {
  std::vector<float> logits;
  float temperature = 1.0F;
  std::int32_t top_k = 0;
  float top_p = 1.0F;
  float min_p = 0.0F;
  std::uint64_t seed = 1;
  std::int32_t position = 0;
};

struct SamplingOracle {
  std::vector<int> kept;              // the tokens that may be drawn, best first
  std::vector<double> probabilities;  // by token; of the kept ones, renormalised
  int token;                          // the one that is drawn
  double margin;  // how far the nearest decision was from going the other way, as probability
};

[[nodiscard]] SamplingOracle sample_by_sorting(const SamplingCase& lane, std::uint32_t sampler_id);

}  // namespace rigel::kernels
