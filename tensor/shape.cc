#include "tensor/shape.h"

namespace rigel {

void Shape::erase(int dim) {
  RIGEL_CHECK(dim >= 0 && dim < rank_, "no dimension {} in {}", dim, to_string(*this));
  for (int index = dim; index + 1 < rank_; ++index) {
    set(index, (*this)[index + 1]);
  }
  set(--rank_, 0);
}

void Shape::insert(int dim, std::int64_t extent) {
  RIGEL_CHECK(dim >= 0 && dim <= rank_ && rank_ < kMaxRank, "cannot insert dimension {} into {}",
              dim, to_string(*this));
  for (int index = rank_++; index > dim; --index) {
    set(index, (*this)[index - 1]);
  }
  set(dim, extent);
}

std::string to_string(const Shape& shape) {
  std::string text = "(";
  for (int dim = 0; dim < shape.rank(); ++dim) {
    text += fmt::format("{}{}", dim == 0 ? "" : ", ", shape[dim]);
  }
  return text + ")";
}

}  // namespace rigel
