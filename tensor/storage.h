#pragma once

#include "tensor/view.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rigel {

class Device;
namespace detail {
struct StreamState;
}

struct Storage;

/// Where a storage goes when its last tensor is gone.
class StorageOwner {
 public:
  /// Thread: any, whichever drops the last tensor.
  virtual void give_back(Storage& storage) const noexcept = 0;

 protected:
  ~StorageOwner() = default;
};

/// A block of memory that tensors share, with the number of them. Made by allocators only.
struct Storage {
  std::atomic<std::int32_t> num_tensors{0};
  Space space = Space::kHost;
  bool pinned = false;
  std::byte* data = nullptr;
  std::int64_t num_bytes = 0;
  const StorageOwner* owner = nullptr;

  // For the caching allocator.
  detail::StreamState* stream = nullptr;  // the stream whose order its reuse follows
  detail::StreamState* other_user =
      nullptr;  // another stream that worked on it, see Tensor::used_on
  Storage* next = nullptr;
  int size_class = 0;
};

}  // namespace rigel
