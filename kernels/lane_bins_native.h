#pragma once

#include "kernels/lane_native.h"

// Filters that leave more tokens than a list of candidates holds: a lane is divided into bins of nearly equal logits by one
// vector pass, and only the bin in which the filter ends is looked at more closely. Exact: bins keep the order of sampling.

namespace rigel::kernels {

/// Bins by distance below the largest logit; beyond 30.5 nothing has mass.
static constexpr int kNumBins = 2048;
static constexpr float kBinsPerUnit = 64.0f;

/// A lane of logits and how they become masses.
struct LaneLogits {
  const float* logits;
  int vocabulary;
  SamplingRule rule;
};

/// An order key, to be compared with eight tokens at a time.
struct KeyBound {
  __m256i ordered;    // its logit as a signed integer of the same order
  __m256i max_token;  // with just this logit, the last token that is not below the key
};

RIGEL_NATIVE_INLINE KeyBound key_bound(std::uint64_t key) {
  const std::uint32_t ordered = static_cast<std::uint32_t>(key >> 32) ^ 0x80000000u;
  const std::uint32_t token = 0xffffffffu - static_cast<std::uint32_t>(key);
  return {_mm256_set1_epi32(static_cast<std::int32_t>(ordered)),
          _mm256_set1_epi32(token > 0x7fffffffu ? 0x7fffffff : static_cast<std::int32_t>(token))};
}

/// Whether the order keys of eight tokens from `first_token` on are at least the bound.
RIGEL_NATIVE_INLINE __m256i reaches8(const KeyBound& bound, F8 logits, int first_token) {
  // As ordered_bits, less the bit that makes it unsigned. Adding zero makes -0 and +0 the same logit.
  const __m256i bits = _mm256_castps_si256(logits + splat8(0.0f));
  const __m256i ordered = _mm256_xor_si256(bits, _mm256_srli_epi32(_mm256_srai_epi32(bits, 31), 1));
  const __m256i tokens =
      _mm256_add_epi32(_mm256_set1_epi32(first_token), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  const __m256i equal = _mm256_andnot_si256(_mm256_cmpgt_epi32(tokens, bound.max_token),
                                            _mm256_cmpeq_epi32(ordered, bound.ordered));
  return _mm256_or_si256(_mm256_cmpgt_epi32(ordered, bound.ordered), equal);
}

/// Smaller logits never come into an earlier bin: every operation here is monotonic.
RIGEL_NATIVE_INLINE __m256i bins8(F8 distance) {
  return _mm256_cvttps_epi32(
      min8(distance * splat8(kBinsPerUnit), splat8(static_cast<float>(kNumBins - 1))));
}

struct StoredMasses {
  std::uint32_t high[8] __attribute__((aligned(32)));
  std::uint32_t low[8] __attribute__((aligned(32)));
};

RIGEL_NATIVE_INLINE std::uint64_t mass_at(const StoredMasses& masses, int index) {
  return (static_cast<std::uint64_t>(masses.high[index]) << 22) + masses.low[index];
}

/// Stores eight masses; the mask of those that are wanted and not zero.
RIGEL_NATIVE_INLINE unsigned store_masses(const MassPieces& pieces, __m256i wanted,
                                          StoredMasses& masses) {
  const __m256i massless =
      _mm256_cmpeq_epi32(_mm256_or_si256(pieces.high, pieces.low), _mm256_setzero_si256());
  _mm256_store_si256(reinterpret_cast<__m256i*>(masses.high), pieces.high);
  _mm256_store_si256(reinterpret_cast<__m256i*>(masses.low), pieces.low);
  return static_cast<unsigned>(
      _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_andnot_si256(massless, wanted))));
}

/// body(token, mass) for tokens in [begin, end) that have mass and that wanted8(logits, distance, first token) names.
template <class Wanted8, class Body>
RIGEL_NATIVE_INLINE void each_with_mass(const LaneLogits& lane, int begin, int end,
                                        Wanted8&& wanted8, Body&& body) {
  for (int at = begin; at < end; at += 8) {
    const F8 logits = load_logits(lane.logits, at, lane.vocabulary);
    const F8 distance = distance8<false>(lane.rule, logits);
    const __m256i wanted = wanted8(logits, distance, at);
    if (_mm256_testz_si256(wanted, wanted) != 0) {
      continue;
    }
    StoredMasses masses;
    unsigned hits = store_masses(masses8(lane.rule, logits, distance), wanted, masses);
    for (; hits != 0; hits &= hits - 1) {
      const int index = __builtin_ctz(hits);
      body(at + index, mass_at(masses, index));
    }
  }
}

/// The tokens of one bin as a source of select_prefix.
struct LaneBin {
  LaneLogits lane;
  std::uint64_t floor;
  int bin;

  template <class Body>
  RIGEL_NATIVE_INLINE void each(const LaneBin& source, Body&& body) {
    const KeyBound bound = key_bound(source.floor);
    const __m256i bin = _mm256_set1_epi32(source.bin);
    each_with_mass(
        source.lane, 0, source.lane.vocabulary,
        [&](F8 logits, F8 distance, int at) __attribute__((always_inline)) {
          return _mm256_and_si256(_mm256_cmpeq_epi32(bins8(distance), bin),
                                  reaches8(bound, logits, at));
        },
        [&](int token, std::uint64_t mass) __attribute__((always_inline)) {
          body(token, order_key(source.lane.logits[token], token), mass);
        });
  }
};

/// Mass and number of tokens of a bin, added at once.
struct LaneBins {
  __m128i sums[kNumBins];
};

RIGEL_NATIVE_INLINE std::uint64_t bin_mass(__m128i sums) {
  return static_cast<std::uint64_t>(_mm_extract_epi64(sums, 0));
}
RIGEL_NATIVE_INLINE std::uint32_t bin_count(__m128i sums) {
  return static_cast<std::uint32_t>(_mm_extract_epi64(sums, 1));
}

/// Adds four tokens' masses and counts (64 bits each) to their bins.
RIGEL_NATIVE_INLINE void add_to_bins(LaneBins& bins, const std::int32_t* places, __m256i masses,
                                     __m256i counts) {
  const __m256i even = _mm256_unpacklo_epi64(masses, counts);
  const __m256i odd = _mm256_unpackhi_epi64(masses, counts);
  const __m128i tokens[4] = {_mm256_castsi256_si128(even), _mm256_castsi256_si128(odd),
                             _mm256_extracti128_si256(even, 1), _mm256_extracti128_si256(odd, 1)};
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    bins.sums[places[i]] = _mm_add_epi64(bins.sums[places[i]], tokens[i]);
  }
}

/// Masses and counts of the tokens that have mass and whose key is at least `floor`. The others add zero.
static inline void fill_bins(const LaneLogits& lane, std::uint64_t floor, LaneBins& bins) {
  __builtin_memset(&bins, 0, sizeof bins);
  const KeyBound bound = key_bound(floor);
  for (int at = 0; at < lane.vocabulary; at += 8) {
    const F8 logits = load_logits(lane.logits, at, lane.vocabulary);
    const F8 distance = distance8<false>(lane.rule, logits);
    const MassPieces pieces = masses8(lane.rule, logits, distance);
    const __m256i massless =
        _mm256_cmpeq_epi32(_mm256_or_si256(pieces.high, pieces.low), _mm256_setzero_si256());
    const __m256i wanted = _mm256_andnot_si256(massless, reaches8(bound, logits, at));
    const __m256i high = _mm256_and_si256(wanted, pieces.high);
    const __m256i low = _mm256_and_si256(wanted, pieces.low);
    const __m256i ones = _mm256_srli_epi32(wanted, 31);
    std::int32_t places[8] __attribute__((aligned(32)));
    _mm256_store_si256(reinterpret_cast<__m256i*>(places), bins8(distance));
    const auto widened = [](__m256i values, int half) __attribute__((always_inline)) {
      return _mm256_cvtepu32_epi64(half == 0 ? _mm256_castsi256_si128(values)
                                             : _mm256_extracti128_si256(values, 1));
    };
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m256i masses =
          _mm256_add_epi64(_mm256_slli_epi64(widened(high, half), 22), widened(low, half));
      add_to_bins(bins, places + half * 4, masses, widened(ones, half));
    }
  }
}

/// Selects within one bin. The cutoff is the key of the last token taken, so that it holds for the whole lane.
template <bool BY_MASS, class Source>
static inline Selection select_in_bin(const Source& source, std::uint64_t target) {
  Selection taken = select_prefix<BY_MASS, false>(source, 0, target);
  std::uint64_t last = ~std::uint64_t{0};
  Source::each(source, [&](int, std::uint64_t key, std::uint64_t mass) {
    if (mass != 0 && key >= taken.cutoff && key < last) {
      last = key;
    }
  });
  taken.cutoff = last;
  return taken;
}

/// As select_prefix without MASSLESS, over the lane itself. `list` is scratch.
template <bool BY_MASS>
static inline Selection select_in_lane(const LaneLogits& lane, std::uint64_t floor,
                                       std::uint64_t target, Candidates& list) {
  LaneBins bins;
  fill_bins(lane, floor, bins);
  Selection above = {floor, 0, 0};
  int bin = 0;
  const auto measure = [&] {
    return BY_MASS ? above.mass + bin_mass(bins.sums[bin])
                   : above.num_tokens + bin_count(bins.sums[bin]);
  };
  for (; bin < kNumBins && measure() < target; ++bin) {
    above.mass += bin_mass(bins.sums[bin]);
    above.num_tokens += bin_count(bins.sums[bin]);
  }
  if (bin == kNumBins) {
    return above;  // all there is
  }
  const LaneBin source{lane, floor, bin};
  const std::uint64_t rest = target - (BY_MASS ? above.mass : above.num_tokens);
  Selection within;
  if (bin_count(bins.sums[bin]) <= static_cast<std::uint32_t>(kMaxCandidates)) {
    list.num_tokens = 0;
    LaneBin::each(source, [&](int token, std::uint64_t key, std::uint64_t mass) {
      list.tokens[list.num_tokens] = token;
      list.keys[list.num_tokens] = key;
      list.masses[list.num_tokens] = mass;
      ++list.num_tokens;
    });
    within = select_in_bin<BY_MASS>(list, rest);
  } else {
    within = select_in_bin<BY_MASS>(source, rest);
  }
  return {within.cutoff, above.mass + within.mass, above.num_tokens + within.num_tokens};
}

/// The token at which the running mass of keys >= cutoff passes `offset`. Pre: offset is less than the mass of those keys.
static inline int find_token_in_lane(const LaneLogits& lane, std::uint64_t cutoff,
                                     std::uint64_t offset) {
  const KeyBound bound = key_bound(cutoff);
  int found = -1;
  for (int begin = 0; begin < lane.vocabulary && found < 0; begin += kMassBlock) {
    const int end = smaller(begin + kMassBlock, lane.vocabulary);
    MassSums sums = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (int at = begin; at < end; at += 8) {
      const F8 logits = load_logits(lane.logits, at, lane.vocabulary);
      const MassPieces pieces = masses8(lane.rule, logits, distance8<false>(lane.rule, logits));
      const __m256i kept = reaches8(bound, logits, at);
      sums.high = _mm256_add_epi32(sums.high, _mm256_and_si256(kept, pieces.high));
      sums.low = _mm256_add_epi32(sums.low, _mm256_and_si256(kept, pieces.low));
    }
    const std::uint64_t mass = total(sums);
    if (offset >= mass) {
      offset -= mass;
      continue;
    }
    each_with_mass(
        lane, begin, end,
        [&](F8 logits, F8, int at)
            __attribute__((always_inline)) { return reaches8(bound, logits, at); },
        [&](int token, std::uint64_t token_mass) __attribute__((always_inline)) {
          if (found < 0 && offset < token_mass) {
            found = token;
          }
          offset -= found < 0 ? token_mass : 0;
        });
  }
  return found;
}

}  // namespace rigel::kernels
