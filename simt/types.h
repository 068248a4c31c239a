#pragma once

// The 16-bit floats of kernels. Under nvcc they are CUDA's own types; on the host they are small types with the same bits,
// so that a CPU build needs no CUDA header. Only conversions exist: load bf16, compute in float, store bf16.

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace simt {
using bf16 = __nv_bfloat16;
using f16 = __half;
}  // namespace simt

#else

#if defined(RIGEL_DEVICE_CUDA)
// Host sources of a CUDA build meet kernel launchers compiled by nvcc, so both must name the same types.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace simt {
using bf16 = __nv_bfloat16;
using f16 = __half;
}  // namespace simt

#else

#include <bit>
#include <cstdint>

namespace simt {

/// bfloat16: the upper half of a float. Rounds to nearest even; NaN stays NaN.
struct bf16 {
  std::uint16_t bits;

  bf16() = default;
  explicit bf16(float value) {
    const std::uint32_t word = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (word & 0x7fffffffu) > 0x7f800000u;
    bits = is_nan ? static_cast<std::uint16_t>((word >> 16) | 0x40u)
                  : static_cast<std::uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

/// IEEE half precision.
struct f16 {
  std::uint16_t bits;

  f16() = default;
  explicit f16(float value) : bits(std::bit_cast<std::uint16_t>(static_cast<_Float16>(value))) {}
  explicit operator float() const { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
};

}  // namespace simt

#endif
#endif
