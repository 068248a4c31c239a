#include "engine/tensor_inputs.h"

#include "tensor/copy.h"
#include "tensor/error.h"

#include <algorithm>
#include <cstring>

namespace rigel {

namespace {

constexpr std::int64_t kNotRead = -1;

/// The shape of the parts behind each other.
Shape joined_shape(SignalId signal, std::span<const Tensor> parts, int dim) {
  RIGEL_CHECK(!parts.empty(), "signal {}: nothing is brought", static_cast<int>(signal));
  Shape shape = parts.front().shape();
  RIGEL_CHECK(dim >= 0 && dim < shape.rank(), "signal {}: dimension {} of a tensor of shape {}",
              static_cast<int>(signal), dim, to_string(shape));
  std::int64_t size = 0;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    Shape rest = parts[part].shape();
    RIGEL_CHECK(rest.rank() == shape.rank() && parts[part].dtype() == parts.front().dtype() &&
                    parts[part].is_contiguous(),
                "signal {}: part {} is {} of shape {}, the first {} of shape {}",
                static_cast<int>(signal), part, name_of(parts[part].dtype()), to_string(rest),
                name_of(parts.front().dtype()), to_string(shape));
    size += rest[dim];
    rest.set(dim, shape[dim]);
    RIGEL_CHECK(rest == shape, "signal {}: part {} has shape {}, the first {}",
                static_cast<int>(signal), part, to_string(parts[part].shape()), to_string(shape));
  }
  shape.set(dim, size);
  return shape;
}

/// `target` may lie within a longer one along `dim`: what stands before that dimension is copied one by one.
void copy_within(StreamRef stream, const DeviceView& target, const ConstHostView& source, int dim) {
  if (dim == 0) {
    copy(stream, target, source);
    return;
  }
  for (std::int64_t index = 0; index < target.dim(0); ++index) {
    copy_within(stream, target.select(0, index), source.select(0, index), dim - 1);
  }
}

/// The same, left to a launch: every dense piece is a row of its own.
void add_splices(const DeviceView& target, const ConstDeviceView& source, int dim,
                 std::vector<kernels::RowSplice>& splices) {
  if (dim == 0) {
    const Shape row{1, target.num_bytes()};
    splices.push_back({DeviceView(target.raw(), Dtype::kU8, row),
                       ConstDeviceView(source.raw(), Dtype::kU8, row),
                       {}});
    return;
  }
  for (std::int64_t index = 0; index < target.dim(0); ++index) {
    add_splices(target.select(0, index), source.select(0, index), dim - 1, splices);
  }
}

/// A request's own inputs lie in ordinary memory, which a copy of the device would wait for.
Tensor in_pinned_memory(const Tensor& part, PinnedPool& pool) {
  Tensor pinned = pool.allocate(part.dtype(), part.shape());
  const ConstHostView source = part.host_view();
  std::memcpy(pinned.host_view().raw(), source.raw(), static_cast<std::size_t>(source.num_bytes()));
  return pinned;
}

void copy_parts(StreamRef stream, const DeviceView& target, std::span<const Tensor> parts, int dim,
                PinnedPool& pool, std::vector<Tensor>& held,
                std::vector<kernels::RowSplice>& splices) {
  std::int64_t done = 0;
  for (const Tensor& part : parts) {
    const DeviceView place = target.slice(dim, done, part.dim(dim));
    done += part.dim(dim);
    if (part.num_elements() == 0) {
      continue;
    }
    if (part.space() == Space::kDevice) {
      add_splices(place, part.device_view(), dim, splices);
    } else {
      held.push_back(in_pinned_memory(part, pool));
      copy_within(stream, place, held.back().host_view(), dim);
    }
  }
}

}  // namespace

ConstDeviceView GatheredInputs::put(StreamRef stream, SignalId signal,
                                    std::span<const Tensor> parts, int dim,
                                    std::vector<kernels::RowSplice>& splices) {
  const Shape shape = joined_shape(signal, parts, dim);
  if (parts.size() == 1 && parts.front().space() == Space::kDevice) {
    held_.push_back(parts.front());
    return parts.front().device_view();
  }
  const Tensor whole = allocator_.allocate(stream, parts.front().dtype(), shape);
  copy_parts(stream, whole.device_view(), parts, dim, pinned_, held_, splices);
  held_.push_back(whole);
  return whole.device_view();
}

void StaticInputs::begin_capture(std::size_t bucket) {
  bucket_ = bucket;
  is_capturing_ = true;
}

void StaticInputs::begin_replay(std::size_t bucket, std::int32_t slot) {
  bucket_ = bucket;
  slot_ = slot;
  is_capturing_ = false;
  held_[static_cast<std::size_t>(slot)].clear();
  for (Input& input : inputs_) {
    input.is_put = false;
  }
}

void StaticInputs::check_complete() const {
  for (const Input& input : inputs_) {
    const bool is_read = bucket_ < input.sizes.size() && input.sizes[bucket_] != kNotRead;
    RIGEL_CHECK(input.is_put || !is_read,
                "signal {}: its captured forward reads it, and the step does not bring it",
                static_cast<int>(input.signal));
  }
}

StaticInputs::Input& StaticInputs::intern(SignalId signal, Dtype dtype, const Shape& shape,
                                          int dim) {
  const auto known = std::ranges::find(inputs_, signal, &Input::signal);
  if (known == inputs_.end()) {
    RIGEL_CHECK(is_capturing_, "signal {}: a step brings it, its capture did not",
                static_cast<int>(signal));
    Input& input = inputs_.emplace_back();
    input.signal = signal;
    input.dim = dim;
    input.dtype = dtype;
    input.shape = shape;
    input.memory = DeviceBuffer(device_, dtype, shape);
    return input;
  }
  Shape rest = shape;
  RIGEL_CHECK(dim == known->dim && dtype == known->dtype && shape.rank() == known->shape.rank(),
              "signal {}: {} of shape {} along dimension {}, the first capture had {} of shape {} "
              "along dimension {}",
              static_cast<int>(signal), name_of(dtype), to_string(shape), dim,
              name_of(known->dtype), to_string(known->shape), known->dim);
  rest.set(dim, known->shape[dim]);
  RIGEL_CHECK(rest == known->shape && shape[dim] <= known->shape[dim],
              "signal {}: shape {} does not fit the buffer of the first capture, {} along "
              "dimension {}",
              static_cast<int>(signal), to_string(shape), to_string(known->shape), dim);
  return *known;
}

ConstDeviceView StaticInputs::put(StreamRef stream, SignalId signal, std::span<const Tensor> parts,
                                  int dim, std::vector<kernels::RowSplice>& splices) {
  const Shape shape = joined_shape(signal, parts, dim);
  Input& input = intern(signal, parts.front().dtype(), shape, dim);
  const DeviceView view = input.memory.view(input.dtype, input.shape).slice(dim, 0, shape[dim]);
  if (is_capturing_) {
    input.sizes.resize(std::max(input.sizes.size(), bucket_ + 1), kNotRead);
    input.sizes[bucket_] = shape[dim];
    return view;
  }
  const std::int64_t most = bucket_ < input.sizes.size() ? input.sizes[bucket_] : kNotRead;
  RIGEL_CHECK(shape[dim] <= most,
              "signal {}: a step brings {} along dimension {}, its capture has "
              "{}",
              static_cast<int>(signal), shape[dim], dim, most);
  copy_parts(stream, view, parts, dim, pinned_, held_[static_cast<std::size_t>(slot_)], splices);
  input.is_put = true;
  return view;
}

std::int64_t StaticInputs::num_splice_entries(std::int64_t num_parts) {
  if (is_capturing_) {
    num_splice_entries_.resize(std::max(num_splice_entries_.size(), bucket_ + 1));
    num_splice_entries_[bucket_] = num_parts;
  }
  return num_splice_entries_[bucket_];
}

std::int64_t StaticInputs::num_bytes() const {
  std::int64_t total = 0;
  for (const Input& input : inputs_) {
    total += input.memory.num_bytes();
  }
  return total;
}

}  // namespace rigel
