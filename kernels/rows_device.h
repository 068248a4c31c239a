#pragma once

#include "kernels/move_bytes_device.h"
#include "kernels/rows_params.h"
#include "simt/simt.h"

namespace rigel::kernels {

// A warp a row, so that narrow rows (a token) do not cost a block each; gridDim.y warps share a wide one.

/// Grid: (rows / warps of a block, warps along a row).
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) gather_rows_kernel(GatherRowsParams p) {
  simt::wait_for_predecessor();
  constexpr int kWarps = BLOCK / 32;
  const int row = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (row >= p.num_rows) {
    return;
  }
  const int source_row = p.source_rows[row];
  const bool missing = source_row < 0 || source_row >= p.num_source_rows;
  move_bytes(p.target + row * p.row_bytes, missing ? nullptr : p.source + source_row * p.row_bytes,
             p.row_bytes, static_cast<std::int64_t>(blockIdx.y) * 32 + threadIdx.x % 32,
             static_cast<std::int64_t>(gridDim.y) * 32);
}

/// Grid: (lanes / warps of a block, warps along a row, signals).
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) splice_rows_kernel(SpliceRowsParams p) {
  constexpr int kWarps = BLOCK / 32;
  const int lane = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (lane >= p.num_lanes) {
    return;
  }
  const int signal = static_cast<int>(blockIdx.z);
  const SpliceEntry entry = p.entries[signal];
  const std::byte* const source =
      splice_source(entry, p.source_rows[signal * p.signal_stride + lane]);
  if (source == nullptr) {
    return;
  }
  move_bytes(entry.target + lane * entry.target_stride, source, entry.row_bytes,
             static_cast<std::int64_t>(blockIdx.y) * 32 + threadIdx.x % 32,
             static_cast<std::int64_t>(gridDim.y) * 32);
}

}  // namespace rigel::kernels
