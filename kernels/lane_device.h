#pragma once

#include "kernels/elements_device.h"
#include "kernels/sampling_rule.h"
#include "simt/simt.h"

// What sampling and log-probabilities do with a lane's logits: one block a lane, exact whatever the block's size and order.

namespace rigel::kernels {

using Mass = unsigned long long;  // CUDA's atomics know this name of uint64_t

/// Calls body(token, logit) for each token of a lane, spread over the block; a thread sees ascending tokens.
template <int BLOCK, class Body>
__device__ inline void for_each_logit(const float* logits, int vocabulary, Body&& body) {
  const int thread = static_cast<int>(threadIdx.x);
  // Rows of a dense (S, V) matrix are all aligned exactly when V is a multiple of 4; the launcher aligns the first.
  if (vocabulary % 4 == 0) {
    for (int token = thread * 4; token < vocabulary; token += BLOCK * 4) {
      float values[4];
      load_elements(logits + token, values);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        body(token + i, values[i]);
      }
    }
  } else {
    for (int token = thread; token < vocabulary; token += BLOCK) {
      body(token, logits[token]);
    }
  }
}

struct LaneMaximum {
  float value;
  int token;    // the first that has it
  bool usable;  // no NaN, no +inf, and something above -inf
};

/// In every thread. Four barriers.
template <int BLOCK>
__device__ inline LaneMaximum find_maximum(const float* logits, int vocabulary) {
  SIMT_SHARED(float, partial, BLOCK / 32);
  SIMT_SHARED(int, shared_token, 1);
  SIMT_SHARED(int, shared_bad, 1);
  constexpr int kNone = 0x7fffffff;
  constexpr float kLargest = 3.402823466e38f;
  float best = __uint_as_float(0xff800000u);  // -inf
  int best_token = kNone;
  bool bad = false;
  for_each_logit<BLOCK>(logits, vocabulary, [&](int token, float logit) {
    bad = bad || !(logit <= kLargest);
    if (logit > best) {
      best = logit;
      best_token = token;
    }
  });
  if (threadIdx.x == 0) {
    *shared_token = kNone;
    *shared_bad = 0;
  }
  const float maximum = simt::block_max<BLOCK>(best, partial);
  if (best_token != kNone && best == maximum) {
    atomicMin(shared_token, best_token);
  }
  if (bad) {
    atomicMax(shared_bad, 1);
  }
  __syncthreads();
  const LaneMaximum result{maximum, *shared_token, *shared_bad == 0 && *shared_token != kNone};
  __syncthreads();
  return result;
}

/// Sum over a warp, in every lane.
__device__ inline Mass warp_sum_mass(Mass value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value += simt::shfl_xor(value, distance);
  }
  return value;
}

/// All tokens that have mass. In every thread.
template <int BLOCK>
__device__ inline Selection select_all(const float* logits, int vocabulary,
                                       const SamplingRule& rule) {
  SIMT_SHARED(Mass, masses, BLOCK / 32);
  SIMT_SHARED(unsigned, counts, BLOCK / 32);
  Mass mass = 0;
  unsigned count = 0;
  for_each_logit<BLOCK>(logits, vocabulary, [&](int, float logit) {
    const Mass token = token_mass(rule, logit);
    mass += token;
    count += token != 0 ? 1 : 0;
  });
  mass = warp_sum_mass(mass);
  count = simt::warp_sum<32>(count);
  if (threadIdx.x % 32 == 0) {
    masses[threadIdx.x / 32] = mass;
    counts[threadIdx.x / 32] = count;
  }
  __syncthreads();
  Selection all{0, 0, 0};
#pragma unroll
  for (int warp = 0; warp < BLOCK / 32; ++warp) {
    all.mass += masses[warp];
    all.num_tokens += counts[warp];
  }
  __syncthreads();
  return all;
}

/// The leading digit of a key in select_prefix: how far the logit is below the largest, in eighths of the temperature. Bits of
/// floats are a poor first digit (logits share two or three exponents); these spread a lane over most bins.
__device__ inline std::uint64_t digits_of(const SamplingRule& rule, float logit, int token) {
  const float eighths = fminf(8.0f * distance_of(rule, logit), 255.0f);
  const std::uint64_t leading = 255u - static_cast<unsigned>(eighths);
  // 8 bits of distance, 32 of the logit, 24 of the token.
  return (leading << 56) | (static_cast<std::uint64_t>(ordered_bits(logit + 0.0f)) << 24) |
         (0xffffffu - static_cast<unsigned>(token));
}

enum class SelectBy { kCount, kMass };

/// What one digit of select_prefix decided; `selection` is of tokens above the digit's bin until it is final.
struct DigitChoice {
  Selection selection;
  bool is_final;
};

/// One thread: walks 256 bins downwards until the target is met. `groups` are sums over 16 bins each.
template <SelectBy BY>
__device__ inline DigitChoice choose_digit(const Mass* masses, const unsigned* counts,
                                           const Mass* group_masses, const unsigned* group_counts,
                                           const Selection& above, Mass target, int shift) {
  Selection taken = above;
  const auto reached = [&](Mass mass, unsigned count) {
    return BY == SelectBy::kMass ? taken.mass + mass >= target : taken.num_tokens + count >= target;
  };
  const auto take = [&](Mass mass, unsigned count) {
    taken.mass += mass;
    taken.num_tokens += count;
  };
  int group = 15;
  while (group >= 0 && !reached(group_masses[group], group_counts[group])) {
    take(group_masses[group], group_counts[group]);
    --group;
  }
  if (group < 0) {
    return {taken, true};  // all there is: the cutoff stays below everything
  }
  int bin = group * 16 + 15;
  while (!reached(masses[bin], counts[bin])) {
    take(masses[bin], counts[bin]);
    --bin;
  }
  taken.cutoff |= static_cast<std::uint64_t>(bin) << shift;
  const Mass measure =
      BY == SelectBy::kMass ? taken.mass + masses[bin] : taken.num_tokens + counts[bin];
  const bool whole_bin = measure == target || counts[bin] == 1 || shift == 0;
  if (whole_bin) {
    take(masses[bin], counts[bin]);
  }
  return {taken, whole_bin};
}

/// The fewest leading tokens whose count or mass reaches `target` (all, if it cannot be reached), by radix selection over
/// digits_of: 8 passes of 8 bits at most, usually 2 or 3, because a bin with one token ends the search. Only tokens at or above
/// `floor` take part, and without MASSLESS only those with mass. The cutoff is in terms of digits_of. In every thread.
template <int BLOCK, SelectBy BY, bool MASSLESS>
__device__ inline Selection select_prefix(const float* logits, int vocabulary,
                                          const SamplingRule& rule, std::uint64_t floor,
                                          Mass target) {
  SIMT_SHARED(Mass, masses, 256);
  SIMT_SHARED(unsigned, counts, 256);
  SIMT_SHARED(Mass, group_masses, 16);
  SIMT_SHARED(unsigned, group_counts, 16);
  SIMT_SHARED(DigitChoice, choice, 1);
  const int thread = static_cast<int>(threadIdx.x);
  Selection selection{0, 0, 0};
  for (int shift = 56; shift >= 0; shift -= 8) {
    for (int bin = thread; bin < 256; bin += BLOCK) {
      masses[bin] = 0;
      counts[bin] = 0;
    }
    __syncthreads();
    for_each_logit<BLOCK>(logits, vocabulary, [&](int token, float logit) {
      const std::uint64_t digits = digits_of(rule, logit, token);
      const bool in_bin = shift == 56 || ((digits ^ selection.cutoff) >> (shift + 8)) == 0;
      if (!in_bin || digits < floor) {
        return;
      }
      const Mass mass = token_mass(rule, logit);
      if (!MASSLESS && mass == 0) {
        return;
      }
      const unsigned bin = static_cast<unsigned>(digits >> shift) & 255u;
      simt::atomic_add_block(&masses[bin], mass);
      simt::atomic_add_block(&counts[bin], 1u);
    });
    __syncthreads();
    if (thread < 16) {
      Mass mass = 0;
      unsigned count = 0;
      for (int bin = thread * 16; bin < thread * 16 + 16; ++bin) {
        mass += masses[bin];
        count += counts[bin];
      }
      group_masses[thread] = mass;
      group_counts[thread] = count;
    }
    __syncthreads();
    if (thread == 0) {
      *choice =
          choose_digit<BY>(masses, counts, group_masses, group_counts, selection, target, shift);
    }
    __syncthreads();
    selection = choice->selection;
    if (choice->is_final) {
      break;
    }
  }
  // The next caller's first write to shared memory must not overtake the reads above.
  __syncthreads();
  if (selection.cutoff < floor) {
    selection.cutoff = floor;
  }
  return selection;
}

/// The token at which the running mass of kept tokens (digits >= cutoff), in ascending ids, passes `offset`: the block narrows
/// an interval, a part for each warp. Pre: offset is less than the kept mass. In every thread.
template <int BLOCK>
__device__ inline int find_token_at(const float* logits, int vocabulary, const SamplingRule& rule,
                                    std::uint64_t cutoff, Mass offset) {
  constexpr int kParts = BLOCK / 32;
  SIMT_SHARED(Mass, part_masses, kParts);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int begin = 0;
  int end = vocabulary;
  while (end - begin > 1) {
    const int part_size = (end - begin + kParts - 1) / kParts;
    const int part_begin = begin + warp * part_size;
    const int part_end = min(part_begin + part_size, end);
    Mass mass = 0;
    for (int token = part_begin + lane; token < part_end; token += 32) {
      if (digits_of(rule, logits[token], token) >= cutoff) {
        mass += token_mass(rule, logits[token]);
      }
    }
    mass = warp_sum_mass(mass);
    if (lane == 0) {
      part_masses[warp] = mass;
    }
    __syncthreads();
    int part = 0;
    while (part < kParts - 1 && offset >= part_masses[part]) {
      offset -= part_masses[part];
      ++part;
    }
    __syncthreads();
    begin += part * part_size;
    end = min(begin + part_size, end);
  }
  return begin;
}

}  // namespace rigel::kernels
