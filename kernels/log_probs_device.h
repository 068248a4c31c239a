#pragma once

#include "kernels/lane_device.h"
#include "kernels/log_probs_params.h"
#include "simt/simt.h"

namespace rigel::kernels {

/// The best `count` tokens of a lane into `tokens` and `values`, in order. All threads of the block.
template <int BLOCK, int MAX_TOP>
__device__ inline void write_top(const float* logits, int vocabulary, const SamplingRule& rule,
                                 float log_sum, int count, std::int32_t* tokens, float* values) {
  SIMT_SHARED(std::uint64_t, keys, MAX_TOP);
  SIMT_SHARED(unsigned, num_keys, 1);
  const Selection top = select_prefix<BLOCK, SelectBy::kCount, true>(logits, vocabulary, rule, 0,
                                                                     static_cast<Mass>(count));
  if (threadIdx.x == 0) {
    *num_keys = 0;
  }
  __syncthreads();
  for_each_logit<BLOCK>(logits, vocabulary, [&](int token, float logit) {
    if (digits_of(rule, logit, token) >= top.cutoff) {
      keys[atomicAdd(num_keys, 1u)] = order_key(logit, token);
    }
  });
  __syncthreads();
  // A key's rank is the number of larger keys: no sort, and the order of arrival above does not matter.
  const unsigned listed = *num_keys;
  for (unsigned entry = threadIdx.x; entry < listed; entry += BLOCK) {
    const std::uint64_t key = keys[entry];
    int rank = 0;
    for (unsigned other = 0; other < listed; ++other) {
      rank += keys[other] > key ? 1 : 0;
    }
    const int token = token_of(key);
    tokens[rank] = token;
    values[rank] = log_prob(rule.maximum, log_sum, logits[token]);
  }
}

/// Grid: S. One block a lane.
template <int BLOCK, int MAX_TOP>
__global__ void __launch_bounds__(BLOCK) log_probs_kernel(LogProbParams p) {
  simt::wait_for_predecessor();
  const int lane = static_cast<int>(blockIdx.x);
  const int wanted = p.num_top[lane];
  if (wanted < 0) {
    return;
  }
  const float* logits = p.logits + static_cast<std::int64_t>(lane) * p.vocabulary;
  const LaneMaximum maximum = find_maximum<BLOCK>(logits, p.vocabulary);
  const SamplingRule rule = sampling_rule(maximum.value, 1.0f, 0.0f);
  const float not_a_number = __uint_as_float(0x7fc00000u);
  float log_sum = not_a_number;
  if (maximum.usable) {
    log_sum = log_of_mass(select_all<BLOCK>(logits, p.vocabulary, rule).mass);
  }
  if (threadIdx.x == 0) {
    const int token = p.chosen[lane];
    const bool known = maximum.usable && token >= 0 && token < p.vocabulary;
    p.chosen_values[lane] = known ? log_prob(maximum.value, log_sum, logits[token]) : not_a_number;
  }
  const int count = min(min(wanted, p.max_top), p.vocabulary);
  std::int32_t* tokens = p.top_tokens + static_cast<std::int64_t>(lane) * p.max_top;
  float* values = p.top_values + static_cast<std::int64_t>(lane) * p.max_top;
  const int written = maximum.usable ? count : 0;
  for (int entry = written + static_cast<int>(threadIdx.x); entry < p.max_top; entry += BLOCK) {
    tokens[entry] = -1;
    values[entry] = __uint_as_float(0xff800000u);  // -inf
  }
  if (written > 0) {
    write_top<BLOCK, MAX_TOP>(logits, p.vocabulary, rule, log_sum, written, tokens, values);
  }
}

}  // namespace rigel::kernels
