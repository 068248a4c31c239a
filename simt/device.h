#pragma once

// The CUDA side of the kernel dialect, and the only place of inline PTX. See simt/host.h for the same names on a CPU; the
// host's contracts (masks, alignment, strictness) hold here too, unchecked.

#include "simt/launch_plan.h"
#include "simt/types.h"

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

/// An array in the block's shared memory, at least 16-byte aligned: `SIMT_SHARED(float, sums, 8);` declares `sums`.
#define SIMT_SHARED(type, name, count) __shared__ __align__(16) type name[count]

namespace simt {

/// Places are for the host's messages; here they are nothing.
struct Site {
  __device__ static constexpr Site here() { return {}; }
};

inline constexpr unsigned kFullMask = 0xffffffffu;

__device__ __forceinline__ void sync_block(Site = {}) {
  __syncthreads();
}

// ---- Warp operations.

template <class T>
__device__ __forceinline__ T shfl_idx(T value, int lane, unsigned mask = kFullMask, Site = {}) {
  return __shfl_sync(mask, value, lane);
}
template <class T>
__device__ __forceinline__ T shfl_xor(T value, int lane_mask, unsigned mask = kFullMask,
                                      Site = {}) {
  return __shfl_xor_sync(mask, value, lane_mask);
}
template <class T>
__device__ __forceinline__ T shfl_up(T value, int distance, unsigned mask = kFullMask, Site = {}) {
  return __shfl_up_sync(mask, value, static_cast<unsigned>(distance));
}
template <class T>
__device__ __forceinline__ T shfl_down(T value, int distance, unsigned mask = kFullMask,
                                       Site = {}) {
  return __shfl_down_sync(mask, value, static_cast<unsigned>(distance));
}

namespace detail {
__device__ __forceinline__ float larger(float a, float b) {
  return fmaxf(a, b);
}
__device__ __forceinline__ int larger(int a, int b) {
  return a > b ? a : b;
}
__device__ __forceinline__ unsigned larger(unsigned a, unsigned b) {
  return a > b ? a : b;
}
}  // namespace detail

template <int W = 32, class T>
__device__ __forceinline__ T warp_sum(T value, Site = {}) {
#pragma unroll
  for (int distance = W / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kFullMask, value, distance);
  }
  return value;
}
template <int W = 32, class T>
__device__ __forceinline__ T warp_max(T value, Site = {}) {
#pragma unroll
  for (int distance = W / 2; distance > 0; distance /= 2) {
    value = detail::larger(value, __shfl_xor_sync(kFullMask, value, distance));
  }
  return value;
}

// ---- Memory.

struct alignas(16) Bytes16 {
  std::uint32_t word[4];
};
struct alignas(8) Bytes8 {
  std::uint32_t word[2];
};

template <class To, class From>
__device__ __forceinline__ To bitcast(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

__device__ __forceinline__ Bytes16 ld16(const void* address, Site = {}) {
  return bitcast<Bytes16>(*static_cast<const uint4*>(address));
}
__device__ __forceinline__ Bytes16 ld16_stream(const void* address, Site = {}) {
  return bitcast<Bytes16>(__ldcs(static_cast<const uint4*>(address)));
}
__device__ __forceinline__ void st16(void* address, Bytes16 value, Site = {}) {
  *static_cast<uint4*>(address) = bitcast<uint4>(value);
}
__device__ __forceinline__ Bytes8 ld8(const void* address, Site = {}) {
  return bitcast<Bytes8>(*static_cast<const uint2*>(address));
}
__device__ __forceinline__ void st8(void* address, Bytes8 value, Site = {}) {
  *static_cast<uint2*>(address) = bitcast<uint2>(value);
}

template <class T>
__device__ __forceinline__ T* dyn_smem() {
  extern __shared__ __align__(16) unsigned char simt_dynamic_shared[];
  return reinterpret_cast<T*>(simt_dynamic_shared);
}

template <class T>
__device__ __forceinline__ T atomic_add_block(T* address, T value) {
  return atomicAdd_block(address, value);
}

// ---- Programmatic launches.

__device__ __forceinline__ void wait_for_predecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void release_successor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace simt
