#pragma once

#include "tensor/view.h"

#include <cstdint>

namespace rigel::detail {

/// The bytes that a copy between two views moves, once both were found to be contiguous and alike.
template <class Target, class Source>
[[nodiscard]] std::int64_t bytes_to_copy(const Target& target, const Source& source) {
  RIGEL_CHECK(target.dtype() == source.dtype(), "a copy does not convert: {} to {}",
              name_of(source.dtype()), name_of(target.dtype()));
  RIGEL_CHECK(target.num_elements() == source.num_elements(),
              "a copy needs as many elements on both sides: {} to {}", to_string(source.shape()),
              to_string(target.shape()));
  RIGEL_CHECK(target.is_contiguous() && source.is_contiguous(),
              "a copy needs contiguous views: {} to {}", to_string(source.shape()),
              to_string(target.shape()));
  return target.num_bytes();
}

template <class Target>
[[nodiscard]] std::int64_t bytes_to_fill(const Target& target) {
  RIGEL_CHECK(target.is_contiguous(), "a fill needs a contiguous view, got shape {}",
              to_string(target.shape()));
  return target.num_bytes();
}

}  // namespace rigel::detail
