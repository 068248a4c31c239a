#pragma once

#include "kernels/penalties_params.h"
#include "simt/simt.h"

namespace rigel::kernels {

/// Grid: ceil(n / BLOCK). One thread an entry; entries may name the same token, hence the atomic.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) count_prompt_kernel(CountParams p) {
  simt::wait_for_predecessor();
  const int entry = static_cast<int>(blockIdx.x) * BLOCK + static_cast<int>(threadIdx.x);
  if (entry >= p.num_entries) {
    return;
  }
  const int slot = p.slots[entry];
  const int token = p.tokens[entry];
  if (slot < 0 || token < 0 || token >= p.vocabulary) {
    return;
  }
  std::int32_t* count = p.counts + static_cast<std::int64_t>(slot) * p.vocabulary + token;
  atomicOr(reinterpret_cast<unsigned*>(count), 1u << 30);
}

/// Grid: ceil(S / BLOCK). One thread a lane.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) count_tokens_kernel(CountParams p) {
  simt::wait_for_predecessor();
  const int lane = static_cast<int>(blockIdx.x) * BLOCK + static_cast<int>(threadIdx.x);
  if (lane >= p.num_entries) {
    return;
  }
  const int row = p.rows[lane];
  if (row < 0 || p.publish[lane] == 0) {
    return;
  }
  const int slot = p.slots[row];
  const int token = p.tokens[lane];
  if (slot < 0 || token < 0 || token >= p.vocabulary) {
    return;
  }
  atomicAdd(p.counts + static_cast<std::int64_t>(slot) * p.vocabulary + token, 1);
}

/// Grid: (S, blocks along the vocabulary). One thread a token.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) apply_penalties_kernel(PenaltyParams p) {
  simt::wait_for_predecessor();
  const int lane = static_cast<int>(blockIdx.x);
  const int row = p.rows[lane];
  if (row < 0) {
    return;
  }
  const int slot = p.slots[row];
  if (slot < 0) {
    return;
  }
  const float repetition = p.repetition[row];
  const float presence = p.presence[row];
  const float frequency = p.frequency[row];
  const std::int32_t* counts = p.counts + static_cast<std::int64_t>(slot) * p.vocabulary;
  float* logits = p.logits + static_cast<std::int64_t>(lane) * p.vocabulary;
  const int step = static_cast<int>(gridDim.y) * BLOCK;
  for (int token = static_cast<int>(blockIdx.y) * BLOCK + static_cast<int>(threadIdx.x);
       token < p.vocabulary; token += step) {
    const int seen = counts[token];
    if (seen != 0) {
      logits[token] = penalised(logits[token], seen, repetition, presence, frequency);
    }
  }
}

/// Grid: ceil(n / BLOCK). One thread an entry.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) edit_tokens_kernel(TokenEditParams p) {
  simt::wait_for_predecessor();
  const int entry = static_cast<int>(blockIdx.x) * BLOCK + static_cast<int>(threadIdx.x);
  if (entry >= p.num_entries) {
    return;
  }
  const int lane = p.lanes[entry];
  const int token = p.tokens[entry];
  if (lane < 0 || lane >= p.num_lanes || token < 0 || token >= p.vocabulary) {
    return;
  }
  float* logit = p.logits + static_cast<std::int64_t>(lane) * p.vocabulary + token;
  if (p.bias != nullptr) {
    *logit += p.bias[entry];
  } else {
    *logit = __uint_as_float(0xff800000u);  // -inf
  }
}

}  // namespace rigel::kernels
