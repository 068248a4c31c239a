#pragma once

#include "tensor/dtype.h"
#include "tensor/error.h"

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace rigel {

/// Extents of a tensor, outermost first. At most kMaxRank of them; no heap.
class Shape {
 public:
  static constexpr int kMaxRank = 6;

  constexpr Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) {
    RIGEL_CHECK(extents.size() <= kMaxRank, "a shape has at most 6 dimensions, got {}",
                extents.size());
    for (const std::int64_t extent : extents) {
      RIGEL_CHECK(extent >= 0, "an extent is not negative, got {}", extent);
      extents_[static_cast<std::size_t>(rank_++)] = extent;
    }
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] std::int64_t operator[](int dim) const {
    return extents_[static_cast<std::size_t>(dim)];
  }
  void set(int dim, std::int64_t extent) { extents_[static_cast<std::size_t>(dim)] = extent; }
  /// Removes dimension `dim`.
  void erase(int dim);
  /// Inserts an extent in front of dimension `dim`.
  void insert(int dim, std::int64_t extent);

  [[nodiscard]] std::int64_t num_elements() const {
    std::int64_t product = 1;
    for (int dim = 0; dim < rank_; ++dim) {
      product *= (*this)[dim];
    }
    return product;
  }

  friend bool operator==(const Shape& a, const Shape& b) {
    return a.rank_ == b.rank_ && a.extents_ == b.extents_;
  }

 private:
  std::array<std::int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

/// Bytes of a contiguous tensor.
[[nodiscard]] inline std::int64_t bytes_of(Dtype dtype, const Shape& shape) {
  return shape.num_elements() * static_cast<std::int64_t>(size_of(dtype));
}

/// "(2, 3, 4)".
[[nodiscard]] std::string to_string(const Shape& shape);

}  // namespace rigel
