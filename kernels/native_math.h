#pragma once

#include "kernels/exact_math.h"
#include "simt/types.h"

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

// Vectors of 8 floats for native variants (x_native.cc), in GCC's vector extension. The width is 8 at both instruction set
// levels, so that v3 and v4 add in the same order and give the same bits. Everything is always inlined (kernels/native.h).

#define RIGEL_NATIVE_INLINE static inline __attribute__((always_inline))

namespace rigel::kernels {

typedef float F8 __attribute__((vector_size(32)));          // NOLINT(modernize-use-using)
typedef std::int32_t I8 __attribute__((vector_size(32)));   // NOLINT(modernize-use-using)
typedef std::uint32_t U8 __attribute__((vector_size(32)));  // NOLINT(modernize-use-using)

RIGEL_NATIVE_INLINE F8 splat8(float x) {
  return F8{x, x, x, x, x, x, x, x};
}
RIGEL_NATIVE_INLINE F8 load8(const float* from) {
  return _mm256_loadu_ps(from);
}
RIGEL_NATIVE_INLINE void store8(float* to, F8 x) {
  _mm256_storeu_ps(to, x);
}

/// Eight bfloat16 (as their 16-bit patterns), widened.
RIGEL_NATIVE_INLINE F8 load8_bf16(const void* from) {
  const __m128i halves = _mm_loadu_si128(static_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

/// Rounds to bfloat16, nearest even; NaN stays NaN (the arithmetic of simt::bf16).
RIGEL_NATIVE_INLINE void store8_bf16(void* to, F8 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
  rounded = _mm256_blendv_epi8(rounded, quiet, nan);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded, rounded), 0x08);
  _mm_storeu_si128(static_cast<__m128i*>(to), _mm256_castsi256_si128(packed));
}

RIGEL_NATIVE_INLINE F8 load8(const simt::bf16* from) {
  return load8_bf16(from);
}
RIGEL_NATIVE_INLINE void store8(simt::bf16* to, F8 x) {
  store8_bf16(to, x);
}

/// The first `count` (0 to 7) lanes; the others read as zero.
template <class T>
RIGEL_NATIVE_INLINE F8 load_part(const T* from, int count) {
  T lanes[8] __attribute__((aligned(32)));
  __builtin_memset(lanes, 0, sizeof(lanes));
  __builtin_memcpy(lanes, from, static_cast<std::size_t>(count) * sizeof(T));
  return load8(lanes);
}
template <class T>
RIGEL_NATIVE_INLINE void store_part(T* to, F8 x, int count) {
  T lanes[8] __attribute__((aligned(32)));
  store8(lanes, x);
  __builtin_memcpy(to, lanes, static_cast<std::size_t>(count) * sizeof(T));
}

RIGEL_NATIVE_INLINE int smaller(int a, int b) {
  return a < b ? a : b;
}

/// Rows of `columns` elements that make one item of Pool::parallel_for worth its hand-over (about 10 us of streaming work).
RIGEL_NATIVE_INLINE int rows_per_item(std::int64_t columns) {
  constexpr std::int64_t kItemElements = 32768;
  return columns >= kItemElements ? 1
                                  : static_cast<int>(kItemElements / (columns < 1 ? 1 : columns));
}

/// a * b + c, rounded once.
RIGEL_NATIVE_INLINE F8 fma8(F8 a, F8 b, F8 c) {
  return _mm256_fmadd_ps(a, b, c);
}
/// The larger (smaller) of two; `b` where either is NaN.
RIGEL_NATIVE_INLINE F8 max8(F8 a, F8 b) {
  return _mm256_max_ps(a, b);
}
RIGEL_NATIVE_INLINE F8 min8(F8 a, F8 b) {
  return _mm256_min_ps(a, b);
}

/// Sum of the lanes as ((0+4)+(2+6)) + ((1+5)+(3+7)).
RIGEL_NATIVE_INLINE float sum8(F8 x) {
  const __m128 quad = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 pair = _mm_add_ps(quad, _mm_movehl_ps(quad, quad));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}

/// Largest lane; no lane may be NaN.
RIGEL_NATIVE_INLINE float max_lane8(F8 x) {
  const __m128 quad = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 pair = _mm_max_ps(quad, _mm_movehl_ps(quad, quad));
  return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
}

/// exact_exp of each lane, bit for bit.
RIGEL_NATIVE_INLINE F8 exp8(F8 x) {
  using E = ExpConstants;
  // The operand order lets NaN through both.
  const F8 clamped = min8(splat8(E::kMax), max8(splat8(E::kMin), x));
  const F8 n = fma8(clamped, splat8(E::kLog2e), splat8(E::kRound)) - splat8(E::kRound);
  F8 r = fma8(n, splat8(-E::kLn2High), clamped);
  r = fma8(n, splat8(-E::kLn2Low), r);
  F8 p = splat8(E::kPoly[0]);
  p = fma8(p, r, splat8(E::kPoly[1]));
  p = fma8(p, r, splat8(E::kPoly[2]));
  p = fma8(p, r, splat8(E::kPoly[3]));
  p = fma8(p, r, splat8(E::kPoly[4]));
  p = fma8(p, r, splat8(E::kPoly[5]));
  // An explicit intrinsic: the compiler may not fuse this addition with the one inside fma8.
  p = _mm256_add_ps(fma8(p, _mm256_mul_ps(r, r), r), splat8(1.0f));
  const __m256i exponent =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  const F8 scaled = _mm256_mul_ps(p, _mm256_castsi256_ps(exponent));
  return _mm256_andnot_ps(_mm256_cmp_ps(x, splat8(E::kMin), _CMP_LT_OQ), scaled);
}

}  // namespace rigel::kernels
