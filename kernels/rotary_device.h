#pragma once

#include "kernels/rotary_params.h"
#include "simt/simt.h"

#include <cstdint>

namespace rigel::kernels {

/// One pair a thread, in (token, pair) order.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) rotary_angles_kernel(RotaryAnglesParams p) {
  simt::wait_for_predecessor();
  const std::int64_t index = std::int64_t{blockIdx.x} * BLOCK + threadIdx.x;
  if (index >= std::int64_t{p.num_tokens} * p.num_pairs) {
    return;
  }
  const int position = p.positions[index / p.num_pairs];
  float cosine = 0;
  float sine = 0;
  if (position >= 0) {
    const float angle = static_cast<float>(position) * p.inverse_frequencies[index % p.num_pairs];
    cosine = cosf(angle) * p.scale;
    sine = sinf(angle) * p.scale;
  }
  p.angles[index * 2] = cosine;
  p.angles[index * 2 + 1] = sine;
}

/// N neighbours as floats: one access where they are 8 or 16 bytes, which are then aligned.
template <int N, class T>
__device__ inline void load_run(const T* from, float (&values)[N]) {
  if constexpr (N == simt::kVec<T>) {
    const simt::Vec<T> vector = simt::load_vec(from);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      values[i] = vector.get(i);
    }
  } else if constexpr (N == simt::kVec<T> / 2) {
    const simt::HalfVec<T> vector = simt::load_half_vec(from);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      values[i] = vector.get(i);
    }
  } else {
    static_assert(N == 1, "a run is a vector, half of one, or an element");
    values[0] = simt::to_float(from[0]);
  }
}

template <int N, class T>
__device__ inline void store_run(T* to, const float (&values)[N]) {
  if constexpr (N == simt::kVec<T>) {
    simt::Vec<T> vector;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      vector.set(i, values[i]);
    }
    simt::store_vec(to, vector);
  } else if constexpr (N == simt::kVec<T> / 2) {
    simt::HalfVec<T> vector;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      vector.set(i, values[i]);
    }
    simt::store_half_vec(to, vector);
  } else {
    static_assert(N == 1, "a run is a vector, half of one, or an element");
    to[0] = simt::from_float<T>(values[0]);
  }
}

__device__ inline void rotate(float& a, float& b, float cosine, float sine) {
  const float before = a;
  a = fmaf(a, cosine, -(b * sine));
  b = fmaf(b, cosine, before * sine);
}

/// N pairs of a head, from pair `first` on, from one place to another (perhaps the same).
template <int N, bool INTERLEAVED, class T>
__device__ inline void rotate_run(const T* from, T* to, const float* angles, int first,
                                  int rotary_dim) {
  const int low = INTERLEAVED ? 2 * first : first;
  const int high = INTERLEAVED ? low + N : first + rotary_dim / 2;
  float a[N];
  float b[N];
  load_run(from + low, a);
  load_run(from + high, b);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float cosine = angles[(first + i) * 2];
    const float sine = angles[(first + i) * 2 + 1];
    if constexpr (INTERLEAVED && N > 1) {
      // a and b are 2 N elements in a row: pair i is elements 2i and 2i + 1 of them.
      float* const half = 2 * i < N ? a : b;
      rotate(half[2 * i % N], half[2 * i % N + 1], cosine, sine);
    } else {
      rotate(a[i], b[i], cosine, sine);
    }
  }
  store_run(to + low, a);
  store_run(to + high, b);
}

/// A block a token; a thread takes runs of N pairs, then runs of 2 N elements that pass through. N is 4, or 1 where the
/// rotary dimension or an address is ragged.
template <class T, int N, bool INTERLEAVED, int BLOCK>
__global__ void __launch_bounds__(BLOCK) rotary_kernel(RotaryParams p) {
  simt::wait_for_predecessor();
  const int token = static_cast<int>(blockIdx.x);
  const int row = p.token_rows == nullptr ? 0 : p.token_rows[token];
  if (row < 0) {
    return;
  }
  const bool appends = p.num_kv_heads > 0;
  const int position = appends ? p.positions[token] : 0;
  const std::int64_t page =
      appends ? p.page_table[std::int64_t{row} * p.page_table_stride + (position >> p.page_shift)]
              : 0;
  const int in_page = position & ((1 << p.page_shift) - 1);
  T* const qkv = static_cast<T*>(p.qkv) + token * p.qkv_stride;
  const float* const angles = p.angles + std::int64_t{token} * p.rotary_dim;
  const int runs_of_head = p.head_size / (2 * N);
  const int rotated_runs = p.rotary_dim / (2 * N);
  const int num_runs = (p.num_heads + 2 * p.num_kv_heads) * runs_of_head;
  for (int index = static_cast<int>(threadIdx.x); index < num_runs; index += BLOCK) {
    const int head = index / runs_of_head;
    const int run = index % runs_of_head;
    T* const from = qkv + std::int64_t{head} * p.head_size;
    T* to = from;
    if (head >= p.num_heads) {
      // Keys, then values: in the cache, too, the values of a page follow its keys.
      const std::int64_t line = page * 2 * p.num_kv_heads + (head - p.num_heads);
      to = static_cast<T*>(p.kv) + ((line << p.page_shift) + in_page) * p.head_size;
    }
    if (head < p.num_heads + p.num_kv_heads && run < rotated_runs) {
      rotate_run<N, INTERLEAVED>(from, to, angles, run * N, p.rotary_dim);
    } else if (head >= p.num_heads) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float values[N];
        load_run(from + (2 * run + half) * N, values);
        store_run(to + (2 * run + half) * N, values);
      }
    }
  }
}

}  // namespace rigel::kernels
