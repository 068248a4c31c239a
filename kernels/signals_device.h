#pragma once

#include "kernels/move_bytes_device.h"
#include "kernels/signals_params.h"
#include "simt/simt.h"

namespace rigel::kernels {

/// Grid: (copies / warps of a block, warps along a row). A warp a copy; gridDim.y warps share a wide one.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) materialize_rows_kernel(MaterializeRowsParams p) {
  constexpr int kWarps = BLOCK / 32;
  const int index = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (index >= p.num_copies) {
    return;
  }
  const RowCopy copy = p.copies[index];
  move_bytes(copy.target, copy.source, copy.num_bytes,
             static_cast<std::int64_t>(blockIdx.y) * 32 + threadIdx.x % 32,
             static_cast<std::int64_t>(gridDim.y) * 32);
}

}  // namespace rigel::kernels
