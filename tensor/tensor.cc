#include "tensor/tensor.h"

#include "tensor/allocator.h"
#include "tensor/copy.h"

#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace rigel {
namespace {

// Host tensors made by copy_of: the storage and its elements are one block of the heap.
class HeapOwner final : public StorageOwner {
 public:
  void give_back(Storage& storage) const noexcept override {
    storage.~Storage();
    ::operator delete (static_cast<void*>(&storage), std::align_val_t{kAlignmentBytes});
  }

  [[nodiscard]] Storage& make(std::int64_t num_bytes) const {
    auto* memory = static_cast<std::byte*>(::operator new (
        kHeaderBytes + static_cast<std::size_t>(num_bytes), std::align_val_t{kAlignmentBytes}));
    auto* storage = ::new (static_cast<void*>(memory)) Storage;
    storage->data = memory + kHeaderBytes;
    storage->num_bytes = num_bytes;
    storage->owner = this;
    return *storage;
  }

 private:
  static constexpr std::size_t kAlignmentBytes = 64;
  static constexpr std::size_t kHeaderBytes =
      (sizeof(Storage) + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
};

constexpr HeapOwner kHeap;

}  // namespace

Tensor::Tensor(Storage& storage, Dtype dtype, const Shape& shape)
    : storage_(&storage), geometry_(storage.data, dtype, shape) {
  RIGEL_CHECK(geometry_.num_bytes() <= storage.num_bytes, "{} of {} do not fit into {} bytes",
              to_string(shape), name_of(dtype), storage.num_bytes);
  hold();
}

Tensor::Tensor(Tensor&& other) noexcept
    : storage_(std::exchange(other.storage_, nullptr)),
      geometry_(std::exchange(other.geometry_, DeviceView{})) {}

Tensor& Tensor::operator=(const Tensor& other) {
  other.hold();
  drop();
  storage_ = other.storage_;
  geometry_ = other.geometry_;
  return *this;
}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  // Through a temporary, so that the old storage goes now and not with `other`.
  Tensor moved(std::move(other));
  std::swap(storage_, moved.storage_);
  std::swap(geometry_, moved.geometry_);
  return *this;
}

Tensor Tensor::copy_of(ConstHostView view) {
  RIGEL_CHECK(view.is_contiguous(), "copy_of needs a contiguous view, got shape {}",
              to_string(view.shape()));
  Tensor result(kHeap.make(view.num_bytes()), view.dtype(), view.shape());
  if (view.num_bytes() > 0) {
    std::memcpy(result.storage_->data, view.raw(), static_cast<std::size_t>(view.num_bytes()));
  }
  return result;
}

DeviceView Tensor::device_view() const {
  RIGEL_CHECK(defined() && space() == Space::kDevice, "the tensor is not on the device: shape {}",
              to_string(shape()));
  return geometry_;
}

HostView Tensor::host_view() const {
  RIGEL_CHECK(defined() && space() == Space::kHost, "the tensor is not on the host: shape {}",
              to_string(shape()));
  return {geometry_.raw(), geometry_.dtype(), geometry_.shape(), geometry_.strides()};
}

Tensor Tensor::with(const DeviceView& geometry) const {
  Tensor result = *this;
  result.geometry_ = geometry;
  return result;
}

Tensor Tensor::slice(int index, std::int64_t start, std::int64_t count) const {
  return with(geometry_.slice(index, start, count));
}

Tensor Tensor::select(int index, std::int64_t at) const {
  return with(geometry_.select(index, at));
}

Tensor Tensor::reshape(const Shape& shape) const {
  return with(geometry_.reshape(shape));
}

Tensor Tensor::clone(StreamRef stream, TensorAllocator& allocator) const {
  Tensor result = allocator.allocate(stream, dtype(), shape());
  copy(stream, result.device_view(), device_view());
  return result;
}

void Tensor::used_on(StreamRef stream) const {
  RIGEL_CHECK(defined(), "an undefined tensor is used on no stream, got rank {}", rank());
  if (&stream.state() == storage_->stream) {
    return;
  }
  RIGEL_CHECK(storage_->other_user == nullptr || storage_->other_user == &stream.state(),
              "a storage has one other stream at most, got a second for shape {}",
              to_string(shape()));
  storage_->other_user = &stream.state();
}

}  // namespace rigel
