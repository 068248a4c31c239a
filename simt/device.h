#pragma once

// The CUDA side of the kernel dialect, and the only place of inline PTX. See simt/host.h for the same names on a CPU; the
// host's contracts (masks, alignment, strictness) hold here too, unchecked.

#include "simt/launch_plan.h"
#include "simt/loop_condition.h"
#include "simt/matrix.h"
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

/// The address of shared memory as PTX takes it.
__device__ __forceinline__ unsigned shared_address(const void* address) {
  return static_cast<unsigned>(__cvta_generic_to_shared(address));
}

__device__ __forceinline__ void cp_async16(void* shared, const void* global, bool valid = true,
                                           Site = {}) {
  const int source_bytes = valid ? 16 : 0;  // the rest of the 16 is filled with zeros
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(global), "r"(source_bytes)
               : "memory");
}
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// ---- Matrices.

__device__ __forceinline__ void ldmatrix_x4(FragA& frag, const void* row, Site = {}) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(frag.word[0]), "=r"(frag.word[1]), "=r"(frag.word[2]), "=r"(frag.word[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x2(FragB& frag, const void* row, Site = {}) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(frag.word[0]), "=r"(frag.word[1])
               : "r"(shared_address(row))
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x2_trans(FragB& frag, const void* row, Site = {}) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(frag.word[0]), "=r"(frag.word[1])
               : "r"(shared_address(row))
               : "memory");
}

template <int MT, int NT>
__device__ __forceinline__ void mma_tile(FragC (&sums)[MT][NT], const FragA (&a)[MT],
                                         const FragB (&b)[NT], Site = {}) {
#pragma unroll
  for (int m = 0; m < MT; ++m) {
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      float* const sum = sums[m][n].sum;
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
          : "r"(a[m].word[0]), "r"(a[m].word[1]), "r"(a[m].word[2]), "r"(a[m].word[3]),
            "r"(b[n].word[0]), "r"(b[n].word[1]));
    }
  }
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

__device__ __forceinline__ void store_release_system(std::uint64_t* address, std::uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(address)),
               "l"(value)
               : "memory");
}

// ---- Loops of graphs.

/// Whether the loop that this kernel is a part of begins another turn when this one has ended.
__device__ __forceinline__ void set_loop_condition(LoopCondition condition, bool goes_on) {
  cudaGraphSetConditional(condition.handle, goes_on ? 1u : 0u);
}

// ---- Programmatic launches.

/// The successor's blocks come once all blocks of this grid are there, and wait for its end as this one did for its own
/// predecessor's.
__device__ __forceinline__ void wait_for_predecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace simt
