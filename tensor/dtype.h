#pragma once

#include "simt/types.h"
#include "tensor/error.h"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace rigel {

using simt::bf16;
using simt::f16;

/// Element types of tensors.
enum class Dtype : std::uint8_t { kF32, kF16, kBf16, kI8, kI32, kI64, kU8, kBool };

/// Bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
    case Dtype::kI32:
      return 4;
    case Dtype::kF16:
    case Dtype::kBf16:
      return 2;
    case Dtype::kI64:
      return 8;
    case Dtype::kI8:
    case Dtype::kU8:
    case Dtype::kBool:
      return 1;
  }
  return 0;
}

/// The name people know it by: "float32", "bfloat16", ...
[[nodiscard]] std::string_view name_of(Dtype dtype);

/// The dtype of a C++ element type.
template <class T>
inline constexpr Dtype dtype_of = [] {
  static_assert(sizeof(T) == 0, "no dtype for this element type");
  return Dtype::kU8;
}();
template <>
inline constexpr Dtype dtype_of<float> = Dtype::kF32;
template <>
inline constexpr Dtype dtype_of<f16> = Dtype::kF16;
template <>
inline constexpr Dtype dtype_of<bf16> = Dtype::kBf16;
template <>
inline constexpr Dtype dtype_of<std::int8_t> = Dtype::kI8;
template <>
inline constexpr Dtype dtype_of<std::int32_t> = Dtype::kI32;
template <>
inline constexpr Dtype dtype_of<std::int64_t> = Dtype::kI64;
template <>
inline constexpr Dtype dtype_of<std::uint8_t> = Dtype::kU8;
template <>
inline constexpr Dtype dtype_of<bool> = Dtype::kBool;

/// Calls `visit.template operator()<T>()` with the activation type of `dtype`: bf16 or float. Any other is a bug.
template <class Visit>
decltype(auto) dispatch_activation(Dtype dtype, Visit&& visit) {
  RIGEL_CHECK(dtype == Dtype::kBf16 || dtype == Dtype::kF32,
              "activations are bfloat16 or float32, got {}", name_of(dtype));
  if (dtype == Dtype::kBf16) {
    return std::forward<Visit>(visit).template operator()<bf16>();
  }
  return std::forward<Visit>(visit).template operator()<float>();
}

}  // namespace rigel
