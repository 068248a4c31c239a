#pragma once

#include "tensor/view.h"

#include <cstdint>

namespace rigel {

class Device;

/// Owns device memory for the life of a component. Its end waits for all work on the device, so it is not for a step's
/// temporaries: those come from an allocator or an arena.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// 256-byte aligned. Throws DeviceError when the device has no memory left.
  DeviceBuffer(Device& device, std::int64_t num_bytes);
  DeviceBuffer(Device& device, Dtype dtype, const Shape& shape);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  [[nodiscard]] std::int64_t num_bytes() const { return num_bytes_; }
  [[nodiscard]] std::byte* raw() const { return data_; }
  /// A contiguous view that begins `offset_bytes` into the buffer; must fit, and be aligned for `dtype`.
  [[nodiscard]] DeviceView view(Dtype dtype, const Shape& shape,
                                std::int64_t offset_bytes = 0) const;

 private:
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  std::int64_t num_bytes_ = 0;
};

/// Owns pinned host memory: copies from and to it are asynchronous and may be captured, and kernels can address it.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(Device& device, std::int64_t num_bytes);
  PinnedBuffer(Device& device, Dtype dtype, const Shape& shape);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;

  [[nodiscard]] std::int64_t num_bytes() const { return num_bytes_; }
  [[nodiscard]] std::byte* raw() const { return data_; }
  [[nodiscard]] HostView view(Dtype dtype, const Shape& shape, std::int64_t offset_bytes = 0) const;
  /// The same memory as kernels see it.
  [[nodiscard]] DeviceView device_view(Dtype dtype, const Shape& shape,
                                       std::int64_t offset_bytes = 0) const;

 private:
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  std::int64_t num_bytes_ = 0;
};

}  // namespace rigel
