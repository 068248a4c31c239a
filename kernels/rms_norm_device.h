#pragma once

#include "kernels/elements_device.h"
#include "kernels/rms_norm_params.h"
#include "simt/simt.h"

namespace rigel::kernels {

/// Grid: T. One block a row; each thread reads back in the second pass what it saw (and wrote) in the first.
template <class T, int BLOCK, bool VECTOR, bool ADD>
__global__ void __launch_bounds__(BLOCK) rms_norm_kernel(RmsNormParams p) {
  simt::wait_for_predecessor();
  SIMT_SHARED(float, partial, BLOCK / 32);
  constexpr int kWidth = kUnit<T, VECTOR>;
  const std::int64_t row_start = static_cast<std::int64_t>(blockIdx.x) * p.columns;
  const int first = static_cast<int>(threadIdx.x) * kWidth;
  const float* x = p.x + row_start;

  float squares = 0.0f;
  for (int column = first; column < p.columns; column += BLOCK * kWidth) {
    float values[kWidth];
    load_elements(x + column, values);
    if constexpr (ADD) {
      float delta[kWidth];
      load_elements(static_cast<const T*>(p.delta) + row_start + column, delta);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        values[i] += delta[i];
      }
      store_elements(p.residual + row_start + column, values);
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      squares = fmaf(values[i], values[i], squares);
    }
  }
  squares = simt::block_sum<BLOCK>(squares, partial);
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(p.columns) + p.epsilon);

  const float* normalised = ADD ? p.residual + row_start : x;
  for (int column = first; column < p.columns; column += BLOCK * kWidth) {
    float values[kWidth];
    float weights[kWidth];
    load_elements(normalised + column, values);
    load_elements(p.weight + column, weights);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      values[i] = values[i] * scale * weights[i];
    }
    store_elements(static_cast<T*>(p.out) + row_start + column, values);
  }
}

/// Grid: ceil(T * H / (BLOCK / 32)). One warp a head.
template <class T, int BLOCK, bool VECTOR>
__global__ void __launch_bounds__(BLOCK) head_rms_norm_kernel(HeadRmsNormParams p) {
  simt::wait_for_predecessor();
  constexpr int kWidth = kUnit<T, VECTOR>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t head_index =
      static_cast<std::int64_t>(blockIdx.x) * (BLOCK / 32) + static_cast<int>(threadIdx.x) / 32;
  if (head_index >= static_cast<std::int64_t>(p.num_tokens) * p.num_heads) {
    return;
  }
  const std::int64_t token = head_index / p.num_heads;
  const std::int64_t head = head_index % p.num_heads;
  T* elements = static_cast<T*>(p.heads) + token * p.token_stride + head * p.head_stride;

  float squares = 0.0f;
  for (int column = lane * kWidth; column < p.head_size; column += 32 * kWidth) {
    float values[kWidth];
    load_elements(elements + column, values);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      squares = fmaf(values[i], values[i], squares);
    }
  }
  squares = simt::warp_sum<32>(squares);
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(p.head_size) + p.epsilon);
  for (int column = lane * kWidth; column < p.head_size; column += 32 * kWidth) {
    float values[kWidth];
    float weights[kWidth];
    load_elements(elements + column, values);
    load_elements(p.weight + column, weights);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      values[i] = values[i] * scale * weights[i];
    }
    store_elements(elements + column, values);
  }
}

}  // namespace rigel::kernels
