#include "model/rotary_frequencies.h"

#include "tensor/error.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

namespace rigel {
namespace {

constexpr double kTwoPi = 2.0 * std::numbers::pi;

/// Long wavelengths are stretched by `factor`, short ones kept, those between blended.
double llama3_frequency(const RopeConfig& rope, double frequency) {
  const double wavelength = kTwoPi / frequency;
  const double context = rope.original_max_position;
  if (wavelength < context / rope.high_freq_factor) {
    return frequency;
  }
  if (wavelength > context / rope.low_freq_factor) {
    return frequency / rope.factor;
  }
  const double kept = (context / wavelength - rope.low_freq_factor) /
                      (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - kept) * frequency / rope.factor + kept * frequency;
}

/// The (fractional) pair whose wavelength fits `rotations` times into the pretraining context: the inverse of eq. 17.
double yarn_pair_of(const RopeConfig& rope, double rotations) {
  return rope.rotary_dim * std::log(rope.original_max_position / (rotations * kTwoPi)) /
         (2.0 * std::log(rope.theta));
}

struct YarnRamp {
  double first;  // pairs up to here keep their frequency
  double last;   // pairs from here on are interpolated
};

YarnRamp yarn_ramp(const RopeConfig& rope) {
  double first = yarn_pair_of(rope, rope.beta_fast);
  double last = yarn_pair_of(rope, rope.beta_slow);
  if (rope.truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, rope.rotary_dim - 1.0);
  if (first == last) {
    last += 0.001;  // the published code's guard against a ramp of no length
  }
  return {first, last};
}

/// 0.1 * mscale * ln(factor) + 1: eq. 22, with DeepSeek's mscale.
double yarn_magnitude(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

}  // namespace

std::vector<float> rotary_inverse_frequencies(const RopeConfig& rope) {
  RIGEL_CHECK(rope.rotary_dim >= 0 && rope.rotary_dim % 2 == 0,
              "the rotary dimension is even, got {}", rope.rotary_dim);
  const std::size_t num_pairs = static_cast<std::size_t>(rope.rotary_dim) / 2;
  RIGEL_CHECK(rope.frequency_divisors.empty() || rope.frequency_divisors.size() == num_pairs,
              "frequency divisors go with pairs, got {} for {}", rope.frequency_divisors.size(),
              num_pairs);
  const YarnRamp ramp = rope.scaling == RopeScaling::kYarn ? yarn_ramp(rope) : YarnRamp{0.0, 1.0};
  std::vector<float> frequencies(num_pairs);
  for (std::size_t pair = 0; pair < num_pairs; ++pair) {
    const double index = static_cast<double>(pair);
    double frequency = std::pow(rope.theta, -2.0 * index / rope.rotary_dim);
    switch (rope.scaling) {
      case RopeScaling::kNone:
        break;
      case RopeScaling::kLinear:
        frequency /= rope.factor;
        break;
      case RopeScaling::kLlama3:
        frequency = llama3_frequency(rope, frequency);
        break;
      case RopeScaling::kYarn: {
        const double interpolated =
            std::clamp((index - ramp.first) / (ramp.last - ramp.first), 0.0, 1.0);
        frequency = interpolated * frequency / rope.factor + (1.0 - interpolated) * frequency;
        break;
      }
    }
    if (!rope.frequency_divisors.empty()) {
      frequency /= rope.frequency_divisors[pair];
    }
    frequencies[pair] = static_cast<float>(frequency);
  }
  return frequencies;
}

float rotary_attention_scale(const RopeConfig& rope) {
  if (rope.scaling != RopeScaling::kYarn) {
    return 1.0F;
  }
  if (rope.attention_factor) {
    return static_cast<float>(*rope.attention_factor);
  }
  const double mscale = rope.mscale.value_or(0.0);
  const double mscale_all_dim = rope.mscale_all_dim.value_or(0.0);
  if (mscale != 0.0 && mscale_all_dim != 0.0) {
    return static_cast<float>(yarn_magnitude(rope.factor, mscale) /
                              yarn_magnitude(rope.factor, mscale_all_dim));
  }
  return static_cast<float>(yarn_magnitude(rope.factor, 1.0));
}

}  // namespace rigel
