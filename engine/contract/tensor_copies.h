#pragma once

#include "tensor/allocator.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

#include <span>

namespace rigel {

// New storage made of the elements of others: contiguous, in the space of its source. Device tensors are made in the order
// of `stream` and no value is read, so nothing waits; host tensors are made at once in ordinary memory.
//
// Cost: one copy a contiguous piece. A row cut out of (axes, seq) positions is `axes` pieces; a transposed view is one piece
// an element, which nothing on the step path makes.

/// Copies element by element of equal shapes, whatever the strides of either side.
void copy_elements(StreamRef stream, DeviceView target, ConstDeviceView source);

/// A copy that shares nothing with `tensor`; undefined for an undefined one.
[[nodiscard]] Tensor clone_of(const Tensor& tensor, StreamRef stream, TensorAllocator& allocator);

/// The parts along a new dimension 0. They are in one space, of one dtype and shape; at least one.
[[nodiscard]] Tensor stack_of(std::span<const Tensor> parts, StreamRef stream,
                              TensorAllocator& allocator);

/// The parts one behind the other along `dim`. They are in one space, of one dtype, and of one shape but for `dim`; at least
/// one.
[[nodiscard]] Tensor concatenation_of(std::span<const Tensor> parts, int dim, StreamRef stream,
                                      TensorAllocator& allocator);

}  // namespace rigel
