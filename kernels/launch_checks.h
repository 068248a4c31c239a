#pragma once

#include "tensor/view.h"

#include <cstdint>
#include <initializer_list>

// Preconditions that launchers share. A broken one is a bug of the caller (CheckError).

namespace rigel::kernels {

/// Checks dtype and extents of an argument; an extent of -1 stands for any. Contiguity is not checked.
inline void check_tensor(const ConstDeviceView& view, Dtype dtype,
                         std::initializer_list<std::int64_t> extents, const char* name) {
  RIGEL_CHECK(view.dtype() == dtype, "wrong dtype of {}: expected {}, got {}", name, name_of(dtype),
              name_of(view.dtype()));
  bool fits = view.rank() == static_cast<int>(extents.size());
  int dim = 0;
  for (const std::int64_t extent : extents) {
    fits = fits && (extent < 0 || view.dim(dim) == extent);
    ++dim;
  }
  RIGEL_CHECK(fits, "wrong shape of {}: {}", name, to_string(view.shape()));
}

/// check_tensor, and the elements lie densely in row-major order.
inline void check_dense(const ConstDeviceView& view, Dtype dtype,
                        std::initializer_list<std::int64_t> extents, const char* name) {
  check_tensor(view, dtype, extents, name);
  RIGEL_CHECK(view.is_contiguous(), "{} must be contiguous", name);
}

/// Whether 16-byte accesses to the view's rows are aligned, for rows of `columns` elements that are read in vectors of the
/// activation type's width.
inline bool is_aligned16(const ConstDeviceView& view) {
  return reinterpret_cast<std::uintptr_t>(view.raw()) % 16 == 0;
}

/// ceil(a / b) for a >= 0, b > 0.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace rigel::kernels
