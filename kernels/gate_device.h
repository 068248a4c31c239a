#pragma once

#include "kernels/elements_device.h"
#include "kernels/gate.h"
#include "kernels/gate_params.h"
#include "simt/simt.h"

namespace rigel::kernels {

template <Activation ACTIVATION>
__device__ inline float activate(float x) {
  if constexpr (ACTIVATION == Activation::kSilu) {
    return x / (1.0f + expf(-x));
  } else if constexpr (ACTIVATION == Activation::kGeluTanh) {
    // 1/2 (1 + tanh(u)) = 1 / (1 + exp(-2 u))
    const float u = 0.7978845608f * fmaf(0.044715f * x, x * x, x);
    return x / (1.0f + expf(-2.0f * u));
  } else {
    return 0.5f * x * (1.0f + erff(x * 0.70710678f));
  }
}

/// Grid: (T, ceil(I / (BLOCK * unit))). One thread a unit of outputs.
template <class T, int BLOCK, bool VECTOR, Activation ACTIVATION>
__global__ void __launch_bounds__(BLOCK) gate_kernel(GateParams p) {
  simt::wait_for_predecessor();
  constexpr int kWidth = kUnit<T, VECTOR>;
  const int column =
      (static_cast<int>(blockIdx.y) * BLOCK + static_cast<int>(threadIdx.x)) * kWidth;
  if (column >= p.columns) {
    return;
  }
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x);
  const T* in = static_cast<const T*>(p.gate_up) + row * 2 * p.columns + column;
  float gates[kWidth];
  float ups[kWidth];
  load_elements(in, gates);
  load_elements(in + p.columns, ups);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    gates[i] = activate<ACTIVATION>(gates[i]) * ups[i];
  }
  store_elements(static_cast<T*>(p.out) + row * p.columns + column, gates);
}

/// Grid: ceil(elements / (BLOCK * unit)). out (O) = a (O) + b (T).
template <class O, class T, int BLOCK, bool VECTOR>
__global__ void __launch_bounds__(BLOCK) add_kernel(AddParams p) {
  simt::wait_for_predecessor();
  constexpr int kWidth = kUnit<T, VECTOR>;
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.x) * BLOCK + static_cast<int>(threadIdx.x)) * kWidth;
  if (first >= p.num_elements) {
    return;
  }
  float a[kWidth];
  float b[kWidth];
  load_elements(static_cast<const O*>(p.a) + first, a);
  load_elements(static_cast<const T*>(p.b) + first, b);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    a[i] += b[i];
  }
  store_elements(static_cast<O*>(p.out) + first, a);
}

}  // namespace rigel::kernels
