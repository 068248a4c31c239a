#pragma once

// The vector arithmetic of native attention: panels of 16 keys, products with them, and the softmax of a row of scores.
// Included by *_native.cc only, which is compiled once for each instruction set level.

#include "kernels/attention_params.h"
#include "kernels/native_math.h"

#include <cstdint>

namespace rigel::kernels::RIGEL_NATIVE {

#ifdef __AVX512F__
inline constexpr int kLanes = 16;
inline constexpr int kTileRows = 12;  // 12 accumulators of 32 registers
#else
inline constexpr int kLanes = 8;
inline constexpr int kTileRows = 6;  // 12 accumulators of 16 registers
#endif
inline constexpr int kPanelKeys = 16;  // a page holds whole panels
inline constexpr int kParts = kPanelKeys / kLanes;

using Floats = float __attribute__((vector_size(kLanes * 4)));
using FloatsInMemory = float __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));

// Widening does not depend on the instruction set level: 256 bits are 16 halves or 8 words.
using Halves8 = std::uint16_t __attribute__((vector_size(16), aligned(2), may_alias));
using Halves16 = std::uint16_t __attribute__((vector_size(32)));

[[gnu::always_inline]] inline Floats load(const float* from) {
  return *reinterpret_cast<const FloatsInMemory*>(from);
}
[[gnu::always_inline]] inline void store(float* to, Floats value) {
  *reinterpret_cast<FloatsInMemory*>(to) = value;
}
[[gnu::always_inline]] inline Floats broadcast(float value) {
  return value - Floats{};
}

// --- Products -------------------------------------------------------------------------------------------------------------

/// c (kRows, 16) = [c +] a (kRows, depth) * b (depth, 16). Each output is one chain of FMAs in ascending order.
template <int kRows, bool kAccumulate>
[[gnu::always_inline]] inline void multiply_rows(const float* a, int a_stride, const float* b,
                                                 int b_stride, int depth, float* c, int c_stride) {
  Floats sums[kRows][kParts];
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 2
    for (int part = 0; part < kParts; ++part) {
      sums[row][part] = kAccumulate ? load(c + row * c_stride + part * kLanes) : Floats{};
    }
  }
  for (int k = 0; k < depth; ++k) {
    Floats line[kParts];
#pragma GCC unroll 2
    for (int part = 0; part < kParts; ++part) {
      line[part] = load(b + k * b_stride + part * kLanes);
    }
#pragma GCC unroll 12
    for (int row = 0; row < kRows; ++row) {
      const Floats factor = broadcast(a[row * a_stride + k]);
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part) {
        sums[row][part] += factor * line[part];
      }
    }
  }
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 2
    for (int part = 0; part < kParts; ++part) {
      store(c + row * c_stride + part * kLanes, sums[row][part]);
    }
  }
}

/// multiply_rows for a run-time number of rows, 1 to kTileRows, over `num_columns` columns (a multiple of 16).
template <bool kAccumulate, int kRows = kTileRows>
inline void multiply(int num_rows, const float* a, int a_stride, const float* b, int b_stride,
                     int depth, float* c, int c_stride, int num_columns) {
  if constexpr (kRows > 1) {
    if (num_rows < kRows) {
      multiply<kAccumulate, kRows - 1>(num_rows, a, a_stride, b, b_stride, depth, c, c_stride,
                                       num_columns);
      return;
    }
  }
  for (int column = 0; column < num_columns; column += kPanelKeys) {
    multiply_rows<kRows, kAccumulate>(a, a_stride, b + column, b_stride, depth, c + column,
                                      c_stride);
  }
}

// --- Panels ---------------------------------------------------------------------------------------------------------------

[[gnu::always_inline]] inline Halves16 two_rows(const std::uint16_t* low,
                                                const std::uint16_t* high) {
  return __builtin_shufflevector(*reinterpret_cast<const Halves8*>(low),
                                 *reinterpret_cast<const Halves8*>(high), 0, 1, 2, 3, 4, 5, 6, 7, 8,
                                 9, 10, 11, 12, 13, 14, 15);
}
// Interleaving within the 128-bit halves, as the hardware does it.
[[gnu::always_inline]] inline Halves16 low_halves(Halves16 a, Halves16 b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27);
}
[[gnu::always_inline]] inline Halves16 high_halves(Halves16 a, Halves16 b) {
  return __builtin_shufflevector(a, b, 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31);
}
[[gnu::always_inline]] inline Halves16 low_words(Halves16 a, Halves16 b) {
  const U8 x = reinterpret_cast<U8>(a);
  const U8 y = reinterpret_cast<U8>(b);
  return reinterpret_cast<Halves16>(__builtin_shufflevector(x, y, 0, 8, 1, 9, 4, 12, 5, 13));
}
[[gnu::always_inline]] inline Halves16 high_words(Halves16 a, Halves16 b) {
  const U8 x = reinterpret_cast<U8>(a);
  const U8 y = reinterpret_cast<U8>(b);
  return reinterpret_cast<Halves16>(__builtin_shufflevector(x, y, 2, 10, 3, 11, 6, 14, 7, 15));
}

/// Elements `d` and `d + 1` of 8 keys, side by side as bf16, become two rows of floats: a bf16 is the upper half of a float.
[[gnu::always_inline]] inline void widen_two(Halves16 pair, float* panel) {
  store8(panel, reinterpret_cast<F8>(low_halves(Halves16{}, pair)));
  store8(panel + kPanelKeys, reinterpret_cast<F8>(high_halves(Halves16{}, pair)));
}

/// keys (16, D) -> panel (D, 16) f32.
inline void transpose_keys(const std::uint16_t* keys, int head_size, float* panel) {
  for (int d = 0; d < head_size; d += 8) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {  // keys 0 to 7, then 8 to 15
      const std::uint16_t* row = keys + half * 8 * head_size + d;
      float* to = panel + d * kPanelKeys + half * 8;
      const Halves16 x0 = two_rows(row, row + 4 * head_size);
      const Halves16 x1 = two_rows(row + head_size, row + 5 * head_size);
      const Halves16 x2 = two_rows(row + 2 * head_size, row + 6 * head_size);
      const Halves16 x3 = two_rows(row + 3 * head_size, row + 7 * head_size);
      const Halves16 low01 = low_halves(x0, x1);
      const Halves16 low23 = low_halves(x2, x3);
      const Halves16 high01 = high_halves(x0, x1);
      const Halves16 high23 = high_halves(x2, x3);
      widen_two(low_words(low01, low23), to);
      widen_two(high_words(low01, low23), to + 2 * kPanelKeys);
      widen_two(low_words(high01, high23), to + 4 * kPanelKeys);
      widen_two(high_words(high01, high23), to + 6 * kPanelKeys);
    }
  }
}
inline void transpose_keys(const float* keys, int head_size, float* panel) {
  for (int d = 0; d < head_size; ++d) {
    for (int key = 0; key < kPanelKeys; ++key) {
      panel[d * kPanelKeys + key] = keys[key * head_size + d];
    }
  }
}

/// `count` elements (a multiple of 8) become floats.
inline void widen(const std::uint16_t* from, int count, float* to) {
  for (int i = 0; i < count; i += 8) {
    store8(to + i, load8_bf16(from + i));
  }
}
inline void widen(const float* from, int count, float* to) {
  for (int i = 0; i < count; i += 8) {
    store8(to + i, load8(from + i));
  }
}

/// `count` floats (a multiple of 8) times `factor`, rounded once.
inline void round_scaled(const float* from, float factor, int count, std::uint16_t* to) {
  for (int i = 0; i < count; i += 8) {
    store8_bf16(to + i, load8(from + i) * factor);
  }
}
inline void round_scaled(const float* from, float factor, int count, float* to) {
  for (int i = 0; i < count; i += 8) {
    store8(to + i, load8(from + i) * factor);
  }
}

// --- Softmax --------------------------------------------------------------------------------------------------------------

/// Largest score of a row in a chunk and the sum of exp(score - largest).
struct RowStats {
  float max;
  float sum;
};

/// tanh(x) to about 1e-7 absolute.
[[gnu::always_inline]] inline F8 tanh8(F8 x) {
  const F8 e = exp8((x < 0.0f ? x : -x) * 2.0f);
  const F8 magnitude = (1.0f - e) / (1.0f + e);
  return x < 0.0f ? -magnitude : magnitude;
}

/// Turns the products of a row with the keys of a chunk into weights exp(score - max); keys outside `range` (not empty) of
/// the panels that it touches get 0. Eight partial sums at each instruction set level.
inline RowStats soften(float* row, KeyRange range, float scale, float soft_cap) {
  const int first = range.begin / kPanelKeys * kPanelKeys;
  const F8 nothing = splat8(-__builtin_inff());
  F8 largest = nothing;
  for (int key = first; key < range.end; key += 8) {
    F8 score = load8(row + key) * scale;
    if (soft_cap > 0) {
      score = tanh8(score / soft_cap) * soft_cap;
    }
    const I8 index = I8{0, 1, 2, 3, 4, 5, 6, 7} + key;
    score = (index >= range.begin) & (index < range.end) ? score : nothing;
    store8(row + key, score);
    largest = max8(score, largest);  // a NaN loses: it comes back through its own weight
  }
  const float max = max_lane8(largest);
  F8 sums = splat8(0);
  for (int key = first; key < range.end; key += 8) {
    const F8 weight = exp8(load8(row + key) - max);
    store8(row + key, weight);
    sums += weight;
  }
  return RowStats{max, sum8(sums)};
}

}  // namespace rigel::kernels::RIGEL_NATIVE
