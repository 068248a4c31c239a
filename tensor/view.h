#pragma once

#include "tensor/dtype.h"
#include "tensor/shape.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace rigel {

/// Where bytes live. Pinned host memory is host memory that the device can copy from and to.
enum class Space : std::uint8_t { kDevice, kHost };

/// A non-owning strided tensor whose memory lives in space `S`. Dtype and shape are run-time facts; the place is a type, so
/// that a host read of device memory does not compile (a device view has no element access, only `data<T>()` for launches).
///
/// Byte is `std::byte` or `const std::byte`; a mutable view converts to a read-only one. Strides count elements.
template <Space S, class Byte>
class TensorView {
 public:
  TensorView() = default;
  /// A contiguous view.
  TensorView(Byte* data, Dtype dtype, const Shape& shape)
      : data_(data), dtype_(dtype), shape_(shape) {
    std::int64_t stride = 1;
    for (int dim = shape.rank() - 1; dim >= 0; --dim) {
      strides_[static_cast<std::size_t>(dim)] = stride;
      stride *= shape[dim];
    }
  }
  /// A view with strides of its own, one a dimension.
  TensorView(Byte* data, Dtype dtype, const Shape& shape, std::span<const std::int64_t> strides)
      : data_(data), dtype_(dtype), shape_(shape) {
    RIGEL_CHECK(strides.size() == static_cast<std::size_t>(shape.rank()),
                "a stride for each dimension: got {} for {}", strides.size(), to_string(shape));
    for (std::size_t dim = 0; dim < strides.size(); ++dim) {
      strides_[dim] = strides[dim];
    }
  }
  /// From the mutable view of the same space.
  template <class Other>
  requires(std::is_const_v<Byte> && !std::is_const_v<Other>)
      TensorView(const TensorView<S, Other>& other)  // NOLINT(google-explicit-constructor)
      : data_(other.raw()), dtype_(other.dtype()), shape_(other.shape()) {
    for (int dim = 0; dim < shape_.rank(); ++dim) {
      strides_[static_cast<std::size_t>(dim)] = other.stride(dim);
    }
  }

  [[nodiscard]] Dtype dtype() const { return dtype_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] int rank() const { return shape_.rank(); }
  [[nodiscard]] std::int64_t dim(int index) const { return shape_[index]; }
  [[nodiscard]] std::int64_t stride(int index) const {
    return strides_[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] std::span<const std::int64_t> strides() const {
    return {strides_, static_cast<std::size_t>(shape_.rank())};
  }
  [[nodiscard]] std::int64_t num_elements() const { return shape_.num_elements(); }
  /// Bytes of the elements (not of the strided extent).
  [[nodiscard]] std::int64_t num_bytes() const { return bytes_of(dtype_, shape_); }
  [[nodiscard]] bool defined() const { return data_ != nullptr; }
  [[nodiscard]] Byte* raw() const { return data_; }

  /// The address as `T*`; `T` must be the view's dtype.
  template <class T>
  [[nodiscard]] auto data() const {
    RIGEL_CHECK(dtype_of<std::remove_const_t<T>> == dtype_, "wrong dtype: the view is {}",
                name_of(dtype_));
    if constexpr (std::is_const_v<Byte>) {
      return reinterpret_cast<const T*>(data_);
    } else {
      return reinterpret_cast<T*>(data_);
    }
  }

  /// The elements of a contiguous host view.
  template <class T>
  requires(S == Space::kHost) [[nodiscard]] auto span() const {
    RIGEL_CHECK(is_contiguous(), "a span needs a contiguous view, got shape {}", to_string(shape_));
    auto* begin = data<T>();
    return std::span(begin, static_cast<std::size_t>(num_elements()));
  }

  [[nodiscard]] bool is_contiguous() const {
    std::int64_t expected = 1;
    for (int index = rank() - 1; index >= 0; --index) {
      if (dim(index) != 1 && stride(index) != expected) {
        return false;
      }
      expected *= dim(index);
    }
    return true;
  }

  /// Elements [start, start + count) of dimension `index`; shares memory.
  [[nodiscard]] TensorView slice(int index, std::int64_t start, std::int64_t count) const {
    RIGEL_CHECK(
        index >= 0 && index < rank() && start >= 0 && count >= 0 && start + count <= dim(index),
        "slice [{}, {}) of dimension {} leaves shape {}", start, start + count, index,
        to_string(shape_));
    TensorView result = *this;
    result.data_ += start * stride(index) * static_cast<std::int64_t>(size_of(dtype_));
    result.shape_.set(index, count);
    return result;
  }

  /// Index `at` of dimension `index`, which disappears; shares memory.
  [[nodiscard]] TensorView select(int index, std::int64_t at) const {
    TensorView result = slice(index, at, 1);
    result.shape_.erase(index);
    for (int dim_index = index; dim_index + 1 < rank(); ++dim_index) {
      result.strides_[static_cast<std::size_t>(dim_index)] = stride(dim_index + 1);
    }
    return result;
  }

  /// The same elements under another shape; the view must be contiguous.
  [[nodiscard]] TensorView reshape(const Shape& shape) const {
    RIGEL_CHECK(is_contiguous() && shape.num_elements() == num_elements(),
                "cannot reshape {} to {}", to_string(shape_), to_string(shape));
    return TensorView(data_, dtype_, shape);
  }

 private:
  Byte* data_ = nullptr;
  Dtype dtype_ = Dtype::kF32;
  Shape shape_;
  std::int64_t strides_[Shape::kMaxRank] = {};
};

using DeviceView = TensorView<Space::kDevice, std::byte>;
using ConstDeviceView = TensorView<Space::kDevice, const std::byte>;
using HostView = TensorView<Space::kHost, std::byte>;
using ConstHostView = TensorView<Space::kHost, const std::byte>;

/// A contiguous host view of a span.
template <class T>
[[nodiscard]] HostView host_view(std::span<T> elements) requires(!std::is_const_v<T>) {
  return HostView(reinterpret_cast<std::byte*>(elements.data()), dtype_of<T>,
                  {static_cast<std::int64_t>(elements.size())});
}
template <class T>
[[nodiscard]] ConstHostView const_host_view(std::span<const T> elements) {
  return ConstHostView(reinterpret_cast<const std::byte*>(elements.data()), dtype_of<T>,
                       {static_cast<std::int64_t>(elements.size())});
}

}  // namespace rigel
