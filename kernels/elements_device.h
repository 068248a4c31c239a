#pragma once

#include "simt/simt.h"

// N consecutive elements between memory and float registers. N is a multiple of the type's 16-byte vector (the addresses are
// then 16-byte aligned) or 1.

namespace rigel::kernels {

/// Elements that a thread handles at once: a 16-byte vector of the activation type, or one where rows are ragged.
template <class T, bool VECTOR>
inline constexpr int kUnit = VECTOR ? simt::kVec<T> : 1;

template <int N, class T>
__device__ inline void load_elements(const T* from, float (&values)[N]) {
  if constexpr (N % simt::kVec<T> == 0) {
    constexpr int kWidth = simt::kVec<T>;
#pragma unroll
    for (int first = 0; first < N; first += kWidth) {
      const simt::Vec<T> vector = simt::load_vec(from + first);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        values[first + i] = vector.get(i);
      }
    }
  } else {
    static_assert(N == 1, "a ragged row is read one element at a time");
    values[0] = simt::to_float(from[0]);
  }
}

template <int N, class T>
__device__ inline void store_elements(T* to, const float (&values)[N]) {
  if constexpr (N % simt::kVec<T> == 0) {
    constexpr int kWidth = simt::kVec<T>;
#pragma unroll
    for (int first = 0; first < N; first += kWidth) {
      simt::Vec<T> vector;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        vector.set(i, values[first + i]);
      }
      simt::store_vec(to + first, vector);
    }
  } else {
    static_assert(N == 1, "a ragged row is written one element at a time");
    to[0] = simt::from_float<T>(values[0]);
  }
}

}  // namespace rigel::kernels
