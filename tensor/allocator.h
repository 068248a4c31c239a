#pragma once

#include "tensor/storage.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

#include <cstdint>
#include <memory>

namespace rigel {

class Device;

/// Makes device tensors.
class TensorAllocator {
 public:
  virtual ~TensorAllocator() = default;
  /// An uninitialised contiguous tensor for work in the order of `stream`. Throws DeviceError when memory runs out.
  [[nodiscard]] virtual Tensor allocate(StreamRef stream, Dtype dtype, const Shape& shape) = 0;
};

struct AllocatorStats {
  std::int64_t live_bytes = 0;    // in tensors
  std::int64_t cached_bytes = 0;  // kept for reuse
  std::int64_t num_device_calls = 0;
};

/// Device memory that is kept and reused: a tensor's block serves the next tensor of its size class on the same stream at
/// once, because that stream's order already separates the two. The virtual device sees it in the same order: a freed block
/// reads as 0xFF, a copy from it fails, and AddressSanitizer reports a kernel that touches it.
///
/// Streams and the device must outlive it, and tensors must not. Thread: any. Refused in a capture of the stream, because a
/// replay would use a block after others got it: take captured memory from a GraphPool. Cost: no lock but a spin lock, no
/// heap and no device call unless the cache has no block.
class CachingAllocator final : public TensorAllocator {
 public:
  explicit CachingAllocator(Device& device);
  ~CachingAllocator() override;

  [[nodiscard]] Tensor allocate(StreamRef stream, Dtype dtype, const Shape& shape) override;
  /// The same, but undefined when memory runs out.
  [[nodiscard]] Tensor try_allocate(StreamRef stream, Dtype dtype, const Shape& shape);
  /// Gives all cached blocks back to the device; waits for its work.
  void trim();
  [[nodiscard]] AllocatorStats stats() const;

 private:
  class Blocks;
  std::unique_ptr<Blocks> blocks_;
};

/// Pinned host memory that is kept and reused by size class. A block is free for the next tensor at once, so a holder keeps
/// its tensor until the copies it enqueued are done. Thread and cost as above; it may be used in a capture, where it must
/// not run out of cached blocks.
class PinnedPool {
 public:
  explicit PinnedPool(Device& device);
  ~PinnedPool();

  [[nodiscard]] Tensor allocate(Dtype dtype, const Shape& shape);
  [[nodiscard]] AllocatorStats stats() const;

 private:
  class Blocks;
  std::unique_ptr<Blocks> blocks_;
};

}  // namespace rigel
