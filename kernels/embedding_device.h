#pragma once

#include "kernels/elements_device.h"
#include "kernels/embedding_params.h"
#include "simt/simt.h"

namespace rigel::kernels {

/// Grid: ceil(T / BLOCK). One thread a token.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) select_tokens_kernel(SelectTokensParams p) {
  const int token = static_cast<int>(blockIdx.x) * BLOCK + static_cast<int>(threadIdx.x);
  if (token >= p.num_tokens) {
    return;
  }
  const int row = p.token_rows[token];
  const int staged = p.staged_ids[token];
  int id = -1;
  if (row >= 0) {
    id = staged >= 0 ? staged : p.last_token[row];
  }
  p.out_ids[token] = id;
}

/// Grid: (T, ceil(C / (BLOCK * unit))). One thread a unit of elements.
template <class T, int BLOCK, bool VECTOR>
__global__ void __launch_bounds__(BLOCK) embed_kernel(EmbedParams p) {
  simt::wait_for_predecessor();
  constexpr int kWidth = kUnit<T, VECTOR>;
  const int token = static_cast<int>(blockIdx.x);
  const int column =
      (static_cast<int>(blockIdx.y) * BLOCK + static_cast<int>(threadIdx.x)) * kWidth;
  if (column >= p.columns) {
    return;
  }
  const int id = p.ids[token];
  float values[kWidth] = {};
  if (id >= 0 && id < p.vocabulary) {
    load_elements(
        static_cast<const T*>(p.table) + static_cast<std::int64_t>(id) * p.columns + column,
        values);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      values[i] *= p.scale;
    }
  }
  store_elements(p.out + static_cast<std::int64_t>(token) * p.columns + column, values);
}

}  // namespace rigel::kernels
