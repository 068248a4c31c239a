#pragma once

#include <cstdint>
#include <vector>

// Rows of bytes, and what a copy of rows by index must give.

namespace rigel::kernels {

using Indices = std::vector<std::int32_t>;

/// Bytes that tell row and column apart.
inline std::vector<std::uint8_t> numbered(std::int64_t rows, std::int64_t columns, int seed) {
  std::vector<std::uint8_t> bytes;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      bytes.push_back(static_cast<std::uint8_t>(seed + row * 37 + column * 11));
    }
  }
  return bytes;
}

/// What a copy of rows by index must give; rows without a source are zero, or as they were in `before`.
inline std::vector<std::uint8_t> moved(const std::vector<std::uint8_t>& source,
                                       std::int64_t columns, const Indices& indices,
                                       std::vector<std::uint8_t> before) {
  for (std::size_t row = 0; row < indices.size(); ++row) {
    for (std::int64_t column = 0; indices[row] >= 0 && column < columns; ++column) {
      before[row * static_cast<std::size_t>(columns) + static_cast<std::size_t>(column)] =
          source[static_cast<std::size_t>(indices[row] * columns + column)];
    }
  }
  return before;
}

inline std::int64_t size_of(const Indices& indices) {
  return static_cast<std::int64_t>(indices.size());
}

}  // namespace rigel::kernels
