#pragma once

#include "tensor/storage.h"
#include "tensor/stream.h"
#include "tensor/view.h"

#include <cstdint>
#include <span>

namespace rigel {

class TensorAllocator;

/// A handle to elements that several holders share: a storage, counted, and a dtype, shape and strides within it. Copying
/// shares; the storage returns to its allocator with the last handle. For values that outlive a call, such as a submodule's
/// inputs and outputs; kernels and buffers of known owners use views.
///
/// Thread: handles of one storage may live on several threads; one handle belongs to one thread. Cost: an atomic increment
/// a copy, no heap.
class Tensor {
 public:
  /// Undefined.
  Tensor() = default;
  /// The first handle of a storage, contiguous from its begin.
  Tensor(Storage& storage, Dtype dtype, const Shape& shape);
  ~Tensor() { drop(); }
  Tensor(const Tensor& other) : storage_(other.storage_), geometry_(other.geometry_) { hold(); }
  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(const Tensor& other);
  Tensor& operator=(Tensor&& other) noexcept;

  /// A new host tensor (ordinary memory) of one dimension that holds `elements`. Uses the heap.
  template <class T>
  [[nodiscard]] static Tensor copy_of(std::span<const T> elements) {
    return copy_of(const_host_view(elements));
  }
  /// The same with the shape of a contiguous view.
  [[nodiscard]] static Tensor copy_of(ConstHostView view);

  [[nodiscard]] bool defined() const { return storage_ != nullptr; }
  [[nodiscard]] Space space() const { return storage_ == nullptr ? Space::kHost : storage_->space; }
  [[nodiscard]] Dtype dtype() const { return geometry_.dtype(); }
  [[nodiscard]] const Shape& shape() const { return geometry_.shape(); }
  [[nodiscard]] int rank() const { return geometry_.rank(); }
  [[nodiscard]] std::int64_t dim(int index) const { return geometry_.dim(index); }
  [[nodiscard]] std::int64_t num_elements() const { return geometry_.num_elements(); }
  [[nodiscard]] bool is_contiguous() const { return geometry_.is_contiguous(); }
  [[nodiscard]] bool shares_storage_with(const Tensor& other) const {
    return storage_ == other.storage_;
  }

  /// The elements, for as long as some handle lives. The tensor must be in that space.
  [[nodiscard]] DeviceView device_view() const;
  [[nodiscard]] HostView host_view() const;

  // Other handles to the same storage; see TensorView.
  [[nodiscard]] Tensor slice(int index, std::int64_t start, std::int64_t count) const;
  [[nodiscard]] Tensor select(int index, std::int64_t at) const;
  [[nodiscard]] Tensor reshape(const Shape& shape) const;

  /// A device copy of a contiguous device tensor, made in stream order.
  [[nodiscard]] Tensor clone(StreamRef stream, TensorAllocator& allocator) const;

  /// Work on `stream`, which is not the stream the storage was allocated on, uses the storage: its reuse waits for that
  /// work too. One such stream a storage.
  void used_on(StreamRef stream) const;

 private:
  void hold() const {
    if (storage_ != nullptr) {
      storage_->num_tensors.fetch_add(1, std::memory_order_relaxed);
    }
  }
  void drop() {
    if (storage_ != nullptr && storage_->num_tensors.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      storage_->owner->give_back(*storage_);
    }
  }
  [[nodiscard]] Tensor with(const DeviceView& geometry) const;

  Storage* storage_ = nullptr;
  // Where the elements lie, for either space: only device_view and host_view hand the address out.
  DeviceView geometry_;
};

}  // namespace rigel
