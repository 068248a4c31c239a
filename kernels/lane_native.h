#pragma once

#include "kernels/native_math.h"
#include "kernels/sampling_rule.h"

// What the native variants of sampling and log-probabilities do with a lane's logits. Everything is static or always inlined
// (kernels/native.h). Candidates are gathered by cheap vector passes over the lane; the exact work is done on those few.

namespace rigel::kernels {

/// Logits are scanned in blocks of 32, whose maxima bound the k-th largest logit from below.
static constexpr int kScanBlock = 32;
static constexpr int kMaxScanBlocks = kMaxVocabulary / kScanBlock;
/// Masses are summed in blocks of 512 tokens: a block's 22-bit pieces fit 32-bit lanes, and drawing looks into one block only.
static constexpr int kMassBlock = 512;
static constexpr int kMaxMassBlocks = kMaxVocabulary / kMassBlock;
/// Candidates beyond this many are not listed; the lane itself is searched instead.
static constexpr int kMaxCandidates = 4096;

struct NativeMaximum {
  float value;
  int token;    // the first that has it
  bool usable;  // no NaN, no +inf, and something above -inf
};

/// Eight logits from `at`; lanes beyond the vocabulary read as -inf.
RIGEL_NATIVE_INLINE F8 load_logits(const float* logits, int at, int vocabulary) {
  if (at + 8 <= vocabulary) {
    return load8(logits + at);
  }
  F8 values = splat8(-__builtin_inff());
  for (int i = 0; at + i < vocabulary; ++i) {
    values[i] = logits[at + i];
  }
  return values;
}

/// The first token of a lane whose logit equals `value`, looking from `begin`. Pre: there is one.
static inline int first_token_of(const float* logits, int vocabulary, float value, int begin) {
  for (int at = begin;; at += 8) {
    const F8 logit = load_logits(logits, at, vocabulary);
    const int hits = _mm256_movemask_ps(_mm256_cmp_ps(logit, splat8(value), _CMP_EQ_OQ));
    if (hits != 0) {
      return at + __builtin_ctz(static_cast<unsigned>(hits));
    }
  }
}

/// The largest logit; `block_maxima` (null: not wanted) receives one value for each 32 tokens.
static inline NativeMaximum scan_lane(const float* logits, int vocabulary, float* block_maxima) {
  const F8 largest_finite = splat8(3.402823466e38f);
  F8 best = splat8(-__builtin_inff());
  F8 bad = splat8(0.0f);
  int block = 0;
  int at = 0;
  for (; at + kScanBlock <= vocabulary; at += kScanBlock, ++block) {
    const F8 a = load8(logits + at);
    const F8 b = load8(logits + at + 8);
    const F8 c = load8(logits + at + 16);
    const F8 d = load8(logits + at + 24);
    const F8 highest = max8(max8(a, b), max8(c, d));
    bad = _mm256_or_ps(bad, _mm256_cmp_ps(a, b, _CMP_UNORD_Q));
    bad = _mm256_or_ps(bad, _mm256_cmp_ps(c, d, _CMP_UNORD_Q));
    best = max8(highest, best);
    if (block_maxima != nullptr) {
      block_maxima[block] = max_lane8(highest);
    }
  }
  if (at < vocabulary) {
    F8 highest = splat8(-__builtin_inff());
    for (; at < vocabulary; at += 8) {
      const F8 logit = load_logits(logits, at, vocabulary);
      bad = _mm256_or_ps(bad, _mm256_cmp_ps(logit, logit, _CMP_UNORD_Q));
      highest = max8(logit, highest);
    }
    best = max8(highest, best);
    if (block_maxima != nullptr) {
      block_maxima[block] = max_lane8(highest);
    }
  }
  const bool has_nan = _mm256_movemask_ps(bad) != 0;
  const float maximum = has_nan ? 0.0f : max_lane8(best);
  const bool usable = !has_nan && maximum <= largest_finite[0] && maximum >= -largest_finite[0];
  return {maximum, usable ? first_token_of(logits, vocabulary, maximum, 0) : -1, usable};
}

/// Weights of eight logits as two integer pieces: mass = high * 2^22 + low, as token_mass computes it.
struct MassPieces {
  __m256i high;
  __m256i low;
};

template <bool UNIT_TEMPERATURE>
RIGEL_NATIVE_INLINE F8 distance8(const SamplingRule& rule, F8 logits) {
  const F8 below = splat8(rule.maximum) - logits;
  return UNIT_TEMPERATURE ? below : below / splat8(rule.temperature);  // x / 1 is x
}

RIGEL_NATIVE_INLINE MassPieces masses8(const SamplingRule& rule, F8 logits, F8 distance) {
  const F8 weight = exp8(-distance);
  const __m256 barred = _mm256_or_ps(_mm256_cmp_ps(logits, splat8(-3.402823466e38f), _CMP_LT_OQ),
                                     _mm256_cmp_ps(weight, splat8(rule.min_weight), _CMP_LT_OQ));
  const F8 scaled = _mm256_andnot_ps(barred, weight) * splat8(4194304.0f);
  const __m256i high = _mm256_cvttps_epi32(scaled);
  const F8 rest = _mm256_sub_ps(scaled, _mm256_cvtepi32_ps(high));
  return {high, _mm256_cvttps_epi32(_mm256_mul_ps(rest, splat8(4194304.0f)))};
}

/// Adds up to 512 tokens' pieces without overflow: 512 * 2^22 = 2^31.
struct MassSums {
  __m256i high;
  __m256i low;
};

RIGEL_NATIVE_INLINE std::uint64_t sum_lanes(__m256i values) {
  std::uint32_t lanes[8] __attribute__((aligned(32)));
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), values);
  std::uint64_t sum = 0;
  for (const std::uint32_t lane : lanes) {
    sum += lane;
  }
  return sum;
}

RIGEL_NATIVE_INLINE std::uint64_t total(const MassSums& sums) {
  return (sum_lanes(sums.high) << 22) + sum_lanes(sums.low);
}

/// Tokens at most a given distance below the largest logit.
struct MassLevel {
  std::uint64_t mass;
  std::uint32_t num_tokens;
};

/// Distances of the inner levels; the outermost level is everything that has mass.
static constexpr int kNumLevels = 3;
static constexpr float kLevelDistance[kNumLevels] = {6.0f, 14.0f, 1e30f};

struct LaneMasses {
  MassLevel levels[kNumLevels];
  std::uint64_t blocks[kMaxMassBlocks];  // by 512 tokens
};

template <bool UNIT_TEMPERATURE>
RIGEL_NATIVE_INLINE void sum_masses_at(const float* logits, int vocabulary,
                                       const SamplingRule& rule, LaneMasses& masses) {
  const __m256i zero = _mm256_setzero_si256();
  for (int level = 0; level < kNumLevels; ++level) {
    masses.levels[level] = {0, 0};
  }
  for (int begin = 0; begin < vocabulary; begin += kMassBlock) {
    MassSums sums[kNumLevels] = {{zero, zero}, {zero, zero}, {zero, zero}};
    __m256i counts[kNumLevels] = {zero, zero, zero};
    const int end = smaller(begin + kMassBlock, vocabulary);
    for (int at = begin; at < end; at += 8) {
      const F8 logit = load_logits(logits, at, vocabulary);
      const F8 distance = distance8<UNIT_TEMPERATURE>(rule, logit);
      const MassPieces pieces = masses8(rule, logit, distance);
      const __m256i massless = _mm256_cmpeq_epi32(_mm256_or_si256(pieces.high, pieces.low), zero);
#pragma GCC unroll 3
      for (int level = 0; level < kNumLevels; ++level) {
        const __m256i within =
            _mm256_castps_si256(_mm256_cmp_ps(distance, splat8(kLevelDistance[level]), _CMP_LE_OQ));
        sums[level].high =
            _mm256_add_epi32(sums[level].high, _mm256_and_si256(within, pieces.high));
        sums[level].low = _mm256_add_epi32(sums[level].low, _mm256_and_si256(within, pieces.low));
        counts[level] = _mm256_sub_epi32(counts[level], _mm256_andnot_si256(massless, within));
      }
    }
    for (int level = 0; level < kNumLevels; ++level) {
      masses.levels[level].mass += total(sums[level]);
      masses.levels[level].num_tokens += static_cast<std::uint32_t>(sum_lanes(counts[level]));
    }
    masses.blocks[begin / kMassBlock] = total(sums[kNumLevels - 1]);
  }
}

/// One pass over the lane: masses by level and by block.
static inline void sum_masses(const float* logits, int vocabulary, const SamplingRule& rule,
                              LaneMasses& masses) {
  if (rule.temperature == 1.0f) {
    sum_masses_at<true>(logits, vocabulary, rule, masses);
  } else {
    sum_masses_at<false>(logits, vocabulary, rule, masses);
  }
}

/// The leading tokens of a lane: at least all those at or above some logit, in ascending ids.
struct Candidates {
  int num_tokens;  // kMaxCandidates + 1 or more: too many, not listed
  int tokens[kMaxCandidates + 8];
  float logits[kMaxCandidates + 8];
  std::uint64_t keys[kMaxCandidates];
  std::uint64_t masses[kMaxCandidates];

  template <class Body>
  RIGEL_NATIVE_INLINE void each(const Candidates& list, Body&& body) {
    for (int i = 0; i < list.num_tokens; ++i) {
      body(list.tokens[i], list.keys[i], list.masses[i]);
    }
  }
};

/// Lists the tokens with logits of at least `threshold`, with their keys and masses. False: too many.
static inline bool list_candidates(const float* logits, int vocabulary, const SamplingRule& rule,
                                   float threshold, Candidates& list) {
  int count = 0;
  for (int at = 0; at < vocabulary; at += 8) {
    const F8 logit = load_logits(logits, at, vocabulary);
    unsigned hits = static_cast<unsigned>(
        _mm256_movemask_ps(_mm256_cmp_ps(logit, splat8(threshold), _CMP_GE_OQ)));
    if (vocabulary - at < 8) {
      hits &= (1u << (vocabulary - at)) - 1;
    }
    for (; hits != 0; hits &= hits - 1) {
      const int token = at + __builtin_ctz(hits);
      list.tokens[count] = token;
      list.logits[count] = logits[token];
      ++count;
    }
    if (count > kMaxCandidates) {
      list.num_tokens = count;
      return false;
    }
  }
  list.num_tokens = count;
  for (int i = 0; i < count; i += 8) {
    const F8 logit = load_logits(list.logits, i, count);
    const MassPieces pieces = masses8(rule, logit, distance8<false>(rule, logit));
    std::uint32_t high[8] __attribute__((aligned(32)));
    std::uint32_t low[8] __attribute__((aligned(32)));
    _mm256_store_si256(reinterpret_cast<__m256i*>(high), pieces.high);
    _mm256_store_si256(reinterpret_cast<__m256i*>(low), pieces.low);
    for (int j = 0; j < smaller(count - i, 8); ++j) {
      list.masses[i + j] = (static_cast<std::uint64_t>(high[j]) << 22) + low[j];
      list.keys[i + j] = order_key(list.logits[i + j], list.tokens[i + j]);
    }
  }
  return true;
}

/// The lane itself as a source of select_prefix: slow, for lanes with very many candidates.
struct WholeLane {
  const float* logits;
  int vocabulary;
  SamplingRule rule;

  template <class Body>
  RIGEL_NATIVE_INLINE void each(const WholeLane& lane, Body&& body) {
    for (int token = 0; token < lane.vocabulary; ++token) {
      const float logit = lane.logits[token];
      body(token, order_key(logit, token), token_mass(lane.rule, logit));
    }
  }
};

/// The fewest leading tokens whose count (BY_MASS: mass) reaches `target`; all, if it cannot be reached. Radix selection over
/// the order keys, 8 bits a pass. Only keys at or above `floor` take part, and without MASSLESS only tokens with mass.
template <bool BY_MASS, bool MASSLESS, class Source>
static inline Selection select_prefix(const Source& source, std::uint64_t floor,
                                      std::uint64_t target) {
  Selection taken = {0, 0, 0};
  for (int shift = 56; shift >= 0; shift -= 8) {
    std::uint64_t masses[256] = {};
    std::uint32_t counts[256] = {};
    Source::each(source, [&](int, std::uint64_t key, std::uint64_t mass) {
      const bool in_bin = shift == 56 || ((key ^ taken.cutoff) >> (shift + 8)) == 0;
      if (in_bin && key >= floor && (MASSLESS || mass != 0)) {
        masses[(key >> shift) & 255] += mass;
        counts[(key >> shift) & 255] += 1;
      }
    });
    int bin = 255;
    const auto measure = [&] {
      return BY_MASS ? taken.mass + masses[bin] : taken.num_tokens + counts[bin];
    };
    while (bin >= 0 && measure() < target) {
      taken.mass += masses[bin];
      taken.num_tokens += counts[bin];
      --bin;
    }
    if (bin < 0) {
      break;
    }
    taken.cutoff |= static_cast<std::uint64_t>(bin) << shift;
    if (measure() == target || counts[bin] == 1 || shift == 0) {
      taken.mass += masses[bin];
      taken.num_tokens += counts[bin];
      break;
    }
  }
  taken.cutoff = taken.cutoff < floor ? floor : taken.cutoff;
  return taken;
}

/// The k-th largest of the block maxima: at least k logits are as large. -inf where there are fewer blocks.
struct MaximaSource {
  const float* maxima;
  int num_blocks;

  template <class Body>
  RIGEL_NATIVE_INLINE void each(const MaximaSource& source, Body&& body) {
    for (int block = 0; block < source.num_blocks; ++block) {
      body(block, order_key(source.maxima[block], block), std::uint64_t{0});
    }
  }
};

static inline float bound_of_kth(const float* block_maxima, int num_blocks, int k) {
  if (num_blocks < k) {
    return -__builtin_inff();
  }
  const MaximaSource source{block_maxima, num_blocks};
  const Selection top = select_prefix<false, true>(source, 0, static_cast<std::uint64_t>(k));
  float bound = __builtin_inff();
  for (int block = 0; block < num_blocks; ++block) {
    if (order_key(block_maxima[block], block) >= top.cutoff && block_maxima[block] < bound) {
      bound = block_maxima[block];
    }
  }
  return bound;
}

}  // namespace rigel::kernels
