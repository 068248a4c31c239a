#pragma once

#include "kernels/page_table_params.h"
#include "simt/simt.h"

#include <cstdint>

namespace rigel::kernels {

/// An update a thread.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) page_updates_kernel(PageUpdatesParams p) {
  const int index = static_cast<int>(blockIdx.x) * BLOCK + static_cast<int>(threadIdx.x);
  if (index >= p.num_updates) {
    return;
  }
  const std::int32_t* const update = p.updates + std::int64_t{index} * 3;
  const int row = update[0];
  const int column = update[1];
  if (row < 0 || row >= p.num_rows || column < 0 || column >= p.num_columns) {
    return;
  }
  p.page_table[std::int64_t{row} * p.num_columns + column] = update[2];
}

}  // namespace rigel::kernels
