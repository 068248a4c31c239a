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

/// Grid: ceil(S / BLOCK). One thread a lane.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) advance_rows_kernel(AdvanceRowsParams p) {
  const int lane = static_cast<int>(blockIdx.x) * BLOCK + static_cast<int>(threadIdx.x);
  if (lane >= p.num_lanes) {
    return;
  }
  const int row = p.rows[lane];
  if (row < 0 || row >= p.num_rows) {
    return;
  }
  if (p.positions != nullptr) {
    p.positions[row] += p.spans == nullptr ? 1 : p.spans[lane];
  }
  if (p.loop_counters != nullptr) {
    p.loop_counters[row * p.counter_stride] += 1;
  }
  if (p.last_tokens != nullptr && p.tokens[lane] >= 0) {
    p.last_tokens[row] = p.tokens[lane];
  }
}

}  // namespace rigel::kernels
