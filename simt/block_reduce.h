#pragma once

// Text of both machines: reductions over a block, made of warp operations and barriers.

namespace simt {

/// The sum over the block's BLOCK threads (a multiple of 32, one-dimensional), in every thread, in one fixed order.
/// `red` is shared memory of BLOCK / 32 elements; it is free again on return. T is float, int or unsigned. Two barriers.
template <int BLOCK, class T>
__device__ __forceinline__ T block_sum(T value, T* red, Site site = Site::here()) {
  static_assert(BLOCK % 32 == 0 && BLOCK >= 32 && BLOCK <= 1024);
  T total = warp_sum<32>(value, site);
  if constexpr (BLOCK > 32) {
    if (threadIdx.x % 32 == 0) {
      red[threadIdx.x / 32] = total;
    }
    sync_block(site);
    total = red[0];
    for (int warp = 1; warp < BLOCK / 32; ++warp) {
      total += red[warp];
    }
    sync_block(site);
  }
  return total;
}

/// The maximum over the block, as block_sum; of floats a NaN loses against a number.
template <int BLOCK, class T>
__device__ __forceinline__ T block_max(T value, T* red, Site site = Site::here()) {
  static_assert(BLOCK % 32 == 0 && BLOCK >= 32 && BLOCK <= 1024);
  T largest = warp_max<32>(value, site);
  if constexpr (BLOCK > 32) {
    if (threadIdx.x % 32 == 0) {
      red[threadIdx.x / 32] = largest;
    }
    sync_block(site);
    largest = red[0];
    for (int warp = 1; warp < BLOCK / 32; ++warp) {
      largest = detail::larger(largest, red[warp]);
    }
    sync_block(site);
  }
  return largest;
}

}  // namespace simt
