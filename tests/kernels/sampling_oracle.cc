#include "tests/kernels/sampling_oracle.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace rigel::kernels {
namespace {

/// Philox4x32-10 as in the paper, written for 128-bit words.
std::uint64_t philox_bits(std::uint64_t seed, std::uint32_t sampler_id, std::uint32_t position) {
  std::array<std::uint64_t, 4> x{position, 0, sampler_id, 0};
  std::uint64_t k0 = seed & 0xffffffff;
  std::uint64_t k1 = seed >> 32;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = x[0] * 0xD2511F53;
    const std::uint64_t b = x[2] * 0xCD9E8D57;
    x = {(b >> 32) ^ x[1] ^ k0, b & 0xffffffff, (a >> 32) ^ x[3] ^ k1, a & 0xffffffff};
    k0 = (k0 + 0x9E3779B9) & 0xffffffff;
    k1 = (k1 + 0xBB67AE85) & 0xffffffff;
  }
  return x[0] + (x[1] << 32);
}

/// Keeps tokens, best first, while what stands before them has less than top_p of the mass.
void apply_top_p(const std::vector<double>& weights, double top_p, SamplingOracle& oracle) {
  double total = 0;
  for (const int token : oracle.kept) {
    total += weights[static_cast<std::size_t>(token)];
  }
  double before = 0;
  std::size_t num_kept = 0;
  while (num_kept < oracle.kept.size() && before < top_p * total) {
    before += weights[static_cast<std::size_t>(oracle.kept[num_kept])];
    oracle.margin = std::min(oracle.margin, std::abs(before / total - top_p));
    ++num_kept;
  }
  oracle.kept.resize(num_kept);
}

}  // namespace

SamplingOracle sample_by_sorting(const SamplingCase& lane, std::uint32_t sampler_id) {
  const std::size_t vocabulary = lane.logits.size();
  SamplingOracle oracle{{}, std::vector<double>(vocabulary, 0.0), -1, 1.0};
  std::vector<int> order(vocabulary);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return lane.logits[static_cast<std::size_t>(a)] > lane.logits[static_cast<std::size_t>(b)];
  });
  if (lane.temperature == 0.0F || lane.top_k == 1) {
    oracle.kept = {order[0]};
    oracle.token = order[0];
    oracle.probabilities[static_cast<std::size_t>(order[0])] = 1;
    return oracle;
  }
  const double maximum = static_cast<double>(lane.logits[static_cast<std::size_t>(order[0])]);
  std::vector<double> weights(vocabulary);
  for (std::size_t token = 0; token < vocabulary; ++token) {
    weights[token] = std::exp((static_cast<double>(lane.logits[token]) - maximum) /
                              static_cast<double>(lane.temperature));
  }
  for (const int token : order) {
    const double weight = weights[static_cast<std::size_t>(token)];
    const double min_p = static_cast<double>(lane.min_p);
    oracle.margin = min_p > 0 ? std::min(oracle.margin, std::abs(weight - min_p)) : oracle.margin;
    if (weight >= min_p && weight >= 0x1p-44) {
      oracle.kept.push_back(token);
    }
  }
  if (lane.top_k > 0 && static_cast<std::size_t>(lane.top_k) < oracle.kept.size()) {
    oracle.kept.resize(static_cast<std::size_t>(lane.top_k));
  }
  if (lane.top_p > 0.0F && lane.top_p < 1.0F) {
    apply_top_p(weights, static_cast<double>(lane.top_p), oracle);
  }
  double total = 0;
  for (const int token : oracle.kept) {
    total += weights[static_cast<std::size_t>(token)];
  }
  const std::uint64_t bits =
      philox_bits(lane.seed, sampler_id, static_cast<std::uint32_t>(lane.position));
  const double uniform = static_cast<double>(bits) * 0x1p-64;
  std::vector<int> by_id = oracle.kept;
  std::sort(by_id.begin(), by_id.end());
  double sum = 0;
  for (const int token : by_id) {
    const double probability = weights[static_cast<std::size_t>(token)] / total;
    oracle.probabilities[static_cast<std::size_t>(token)] = probability;
    sum += probability;
    if (token != by_id.back()) {
      oracle.margin = std::min(oracle.margin, std::abs(sum - uniform));
    }
    if (oracle.token < 0 && (uniform < sum || token == by_id.back())) {
      oracle.token = token;
    }
  }
  return oracle;
}

}  // namespace rigel::kernels
