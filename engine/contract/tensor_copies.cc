#include "engine/contract/tensor_copies.h"

#include "tensor/copy.h"
#include "tensor/error.h"

#include <cstddef>
#include <cstring>
#include <vector>

namespace rigel {

namespace {

/// Splits both views along their outermost dimension until either side of a piece is contiguous, and copies the pieces.
template <class Target, class Source, class CopyPiece>
void copy_pieces(const Target& target, const Source& source, const CopyPiece& copy_piece) {
  if (target.num_elements() == 0) {
    return;
  }
  if (target.is_contiguous() && source.is_contiguous()) {
    copy_piece(target, source);
    return;
  }
  for (std::int64_t index = 0; index < target.dim(0); ++index) {
    copy_pieces(target.select(0, index), source.select(0, index), copy_piece);
  }
}

template <class Target, class Source>
void check_alike(const Target& target, const Source& source) {
  RIGEL_CHECK(target.shape() == source.shape() && target.dtype() == source.dtype(),
              "cannot copy {} of {} to {} of {}", to_string(source.shape()),
              name_of(source.dtype()), to_string(target.shape()), name_of(target.dtype()));
}

void copy_elements(HostView target, ConstHostView source) {
  check_alike(target, source);
  copy_pieces(target, source, [](const HostView& to, const ConstHostView& from) {
    std::memcpy(to.raw(), from.raw(), static_cast<std::size_t>(from.num_bytes()));
  });
}

/// A host tensor of this shape that `fill` writes.
template <class Fill>
Tensor filled_host_tensor(Dtype dtype, const Shape& shape, const Fill& fill) {
  std::vector<std::byte> elements(static_cast<std::size_t>(shape.num_elements()) * size_of(dtype));
  const HostView view(elements.data(), dtype, shape);
  fill(view);
  return Tensor::copy_of(view);
}

/// A tensor of this shape in the parts' space; `place(whole, i)` is the view of the whole that part i fills.
template <class Place>
Tensor joined(std::span<const Tensor> parts, const Shape& shape, StreamRef stream,
              TensorAllocator& allocator, const Place& place) {
  const Dtype dtype = parts.front().dtype();
  if (parts.front().space() == Space::kHost) {
    return filled_host_tensor(dtype, shape, [&](const HostView& whole) {
      for (std::size_t index = 0; index < parts.size(); ++index) {
        copy_elements(place(whole, index), parts[index].host_view());
      }
    });
  }
  Tensor result = allocator.allocate(stream, dtype, shape);
  for (std::size_t index = 0; index < parts.size(); ++index) {
    copy_elements(stream, place(result.device_view(), index), parts[index].device_view());
  }
  return result;
}

}  // namespace

void copy_elements(StreamRef stream, DeviceView target, ConstDeviceView source) {
  check_alike(target, source);
  copy_pieces(target, source, [stream](const DeviceView& to, const ConstDeviceView& from) {
    copy(stream, to, from);
  });
}

Tensor clone_of(const Tensor& tensor, StreamRef stream, TensorAllocator& allocator) {
  if (!tensor.defined()) {
    return {};
  }
  if (tensor.space() == Space::kHost && tensor.is_contiguous()) {
    return Tensor::copy_of(tensor.host_view());
  }
  return joined({&tensor, 1}, tensor.shape(), stream, allocator,
                [](const auto& whole, std::size_t) { return whole; });
}

Tensor stack_of(std::span<const Tensor> parts, StreamRef stream, TensorAllocator& allocator) {
  RIGEL_CHECK(!parts.empty(), "nothing to stack, got {} tensors", parts.size());
  Shape shape = parts.front().shape();
  shape.insert(0, static_cast<std::int64_t>(parts.size()));
  return joined(parts, shape, stream, allocator, [](const auto& whole, std::size_t index) {
    return whole.select(0, static_cast<std::int64_t>(index));
  });
}

Tensor concatenation_of(std::span<const Tensor> parts, int dim, StreamRef stream,
                        TensorAllocator& allocator) {
  RIGEL_CHECK(!parts.empty(), "nothing to concatenate, got {} tensors", parts.size());
  std::vector<std::int64_t> starts;
  std::int64_t length = 0;
  for (const Tensor& part : parts) {
    starts.push_back(length);
    length += part.dim(dim);
  }
  Shape shape = parts.front().shape();
  shape.set(dim, length);
  return joined(parts, shape, stream, allocator, [&](const auto& whole, std::size_t index) {
    return whole.slice(dim, starts[index], parts[index].dim(dim));
  });
}

}  // namespace rigel
