#include "tensor/allocator.h"

#include "simt/parking.h"
#include "tensor/block_cache.h"
#include "tensor/device.h"
#include "tensor/stream_order.h"

#include <mutex>
#include <vector>

namespace rigel {
namespace {

bool any_user_captures(const Storage& storage) {
  return StreamRef(*storage.stream).is_capturing() ||
         (storage.other_user != nullptr && StreamRef(*storage.other_user).is_capturing());
}

}  // namespace

class CachingAllocator::Blocks final : public StorageOwner {
 public:
  explicit Blocks(Device& device) : device_(device) {}
  ~Blocks() { trim(); }

  [[nodiscard]] Storage* take(StreamRef stream, std::int64_t num_bytes) {
    if (stream.is_capturing()) {
      throw DeviceError(
          "allocation during a capture: captured work takes its memory from a GraphPool");
    }
    return_deferred();
    const int size_class = detail::size_class_of(num_bytes);
    Storage* storage = take_cached(stream, size_class);
    if (storage == nullptr) {
      storage = make(size_class);
    } else {
      detail::revive_block(stream.state(), storage->data);
    }
    if (storage != nullptr) {
      storage->stream = &stream.state();
    }
    return storage;
  }

  void give_back(Storage& storage) const noexcept override {
    // A block that goes back while its stream captures would put its retirement into the graph.
    if (any_user_captures(storage)) {
      const std::lock_guard lock(lock_);
      storage.next = deferred_;
      deferred_ = &storage;
      return;
    }
    retire(storage);
  }

  void trim() {
    return_deferred();
    std::vector<std::byte*> freed;
    {
      const std::lock_guard lock(lock_);
      cache_.drain([&](Storage& storage) { freed.push_back(storage.data); });
      num_device_calls_ += static_cast<std::int64_t>(freed.size());
    }
    for (std::byte* data : freed) {
      device_.free(data);
    }
  }

  [[nodiscard]] AllocatorStats stats() const {
    const std::lock_guard lock(lock_);
    return {live_bytes_, cache_.cached_bytes(), num_device_calls_};
  }

 private:
  Storage* take_cached(StreamRef stream, int size_class) {
    const std::lock_guard lock(lock_);
    Storage* storage = cache_.take(&stream.state(), size_class);
    live_bytes_ += storage == nullptr ? 0 : storage->num_bytes;
    return storage;
  }

  Storage* make(int size_class) {
    const std::int64_t num_bytes = detail::bytes_of_size_class(size_class);
    void* data = device_.try_allocate(num_bytes);
    if (data == nullptr) {
      trim();
      data = device_.try_allocate(num_bytes);
    }
    if (data == nullptr) {
      return nullptr;
    }
    const std::lock_guard lock(lock_);
    Storage& storage = cache_.add(size_class, static_cast<std::byte*>(data), *this);
    storage.space = Space::kDevice;
    live_bytes_ += num_bytes;
    ++num_device_calls_;
    return &storage;
  }

  void retire(Storage& storage) const noexcept {
    if (storage.other_user != nullptr) {
      detail::order_after(*storage.stream, *storage.other_user);
      storage.other_user = nullptr;
    }
    detail::retire_block(*storage.stream, storage.data);
    const std::lock_guard lock(lock_);
    live_bytes_ -= storage.num_bytes;
    cache_.put(storage);
  }

  void return_deferred() {
    Storage* storage = nullptr;
    {
      const std::lock_guard lock(lock_);
      storage = deferred_;
      deferred_ = nullptr;
    }
    while (storage != nullptr) {
      Storage* next = storage->next;
      give_back(*storage);
      storage = next;
    }
  }

  Device& device_;
  mutable simt::SpinLock lock_;
  mutable detail::BlockCache cache_;
  mutable Storage* deferred_ = nullptr;
  mutable std::int64_t live_bytes_ = 0;
  std::int64_t num_device_calls_ = 0;
};

CachingAllocator::CachingAllocator(Device& device) : blocks_(std::make_unique<Blocks>(device)) {}
CachingAllocator::~CachingAllocator() = default;

Tensor CachingAllocator::allocate(StreamRef stream, Dtype dtype, const Shape& shape) {
  Tensor result = try_allocate(stream, dtype, shape);
  if (!result.defined()) {
    throw DeviceError(fmt::format("out of device memory: {} of {} asked for, {} bytes are free",
                                  to_string(shape), name_of(dtype),
                                  stream.device().free_memory_bytes()));
  }
  return result;
}

Tensor CachingAllocator::try_allocate(StreamRef stream, Dtype dtype, const Shape& shape) {
  Storage* storage = blocks_->take(stream, bytes_of(dtype, shape));
  return storage == nullptr ? Tensor() : Tensor(*storage, dtype, shape);
}

void CachingAllocator::trim() {
  blocks_->trim();
}

AllocatorStats CachingAllocator::stats() const {
  return blocks_->stats();
}

class PinnedPool::Blocks final : public StorageOwner {
 public:
  explicit Blocks(Device& device) : device_(device) {}
  ~Blocks() {
    cache_.drain([this](Storage& storage) { device_.free_pinned(storage.data); });
  }

  [[nodiscard]] Storage& take(std::int64_t num_bytes) {
    const int size_class = detail::size_class_of(num_bytes);
    {
      const std::lock_guard lock(lock_);
      if (Storage* storage = cache_.take(nullptr, size_class); storage != nullptr) {
        live_bytes_ += storage->num_bytes;
        return *storage;
      }
    }
    const std::int64_t block_bytes = detail::bytes_of_size_class(size_class);
    auto* data = static_cast<std::byte*>(device_.allocate_pinned(block_bytes));
    const std::lock_guard lock(lock_);
    Storage& storage = cache_.add(size_class, data, *this);
    storage.pinned = true;
    live_bytes_ += block_bytes;
    ++num_device_calls_;
    return storage;
  }

  void give_back(Storage& storage) const noexcept override {
    const std::lock_guard lock(lock_);
    live_bytes_ -= storage.num_bytes;
    cache_.put(storage);
  }

  [[nodiscard]] AllocatorStats stats() const {
    const std::lock_guard lock(lock_);
    return {live_bytes_, cache_.cached_bytes(), num_device_calls_};
  }

 private:
  Device& device_;
  mutable simt::SpinLock lock_;
  mutable detail::BlockCache cache_;
  mutable std::int64_t live_bytes_ = 0;
  std::int64_t num_device_calls_ = 0;
};

PinnedPool::PinnedPool(Device& device) : blocks_(std::make_unique<Blocks>(device)) {}
PinnedPool::~PinnedPool() = default;

Tensor PinnedPool::allocate(Dtype dtype, const Shape& shape) {
  return Tensor(blocks_->take(bytes_of(dtype, shape)), dtype, shape);
}

AllocatorStats PinnedPool::stats() const {
  return blocks_->stats();
}

}  // namespace rigel
