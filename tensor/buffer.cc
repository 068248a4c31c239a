#include "tensor/buffer.h"

#include "tensor/device.h"

#include <utility>

namespace rigel {
namespace {

// The address of a view that begins `offset_bytes` into `num_bytes` bytes.
std::byte* place(std::byte* data, std::int64_t num_bytes, Dtype dtype, const Shape& shape,
                 std::int64_t offset_bytes) {
  RIGEL_CHECK(offset_bytes >= 0 && offset_bytes + bytes_of(dtype, shape) <= num_bytes,
              "the view leaves its buffer: offset {}, shape {} of {}, buffer of {} bytes",
              offset_bytes, to_string(shape), name_of(dtype), num_bytes);
  RIGEL_CHECK(offset_bytes % static_cast<std::int64_t>(size_of(dtype)) == 0,
              "the view is not aligned for its dtype: offset {}, {}", offset_bytes, name_of(dtype));
  return data + offset_bytes;
}

}  // namespace

DeviceBuffer::DeviceBuffer(Device& device, std::int64_t num_bytes)
    : device_(&device),
      data_(static_cast<std::byte*>(device.allocate(num_bytes))),
      num_bytes_(num_bytes) {}

DeviceBuffer::DeviceBuffer(Device& device, Dtype dtype, const Shape& shape)
    : DeviceBuffer(device, bytes_of(dtype, shape)) {}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) {
    device_->free(data_);
  }
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : device_(other.device_),
      data_(std::exchange(other.data_, nullptr)),
      num_bytes_(std::exchange(other.num_bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  DeviceBuffer moved(std::move(other));
  std::swap(device_, moved.device_);
  std::swap(data_, moved.data_);
  std::swap(num_bytes_, moved.num_bytes_);
  return *this;
}

DeviceView DeviceBuffer::view(Dtype dtype, const Shape& shape, std::int64_t offset_bytes) const {
  return {place(data_, num_bytes_, dtype, shape, offset_bytes), dtype, shape};
}

PinnedBuffer::PinnedBuffer(Device& device, std::int64_t num_bytes)
    : device_(&device),
      data_(static_cast<std::byte*>(device.allocate_pinned(num_bytes))),
      num_bytes_(num_bytes) {}

PinnedBuffer::PinnedBuffer(Device& device, Dtype dtype, const Shape& shape)
    : PinnedBuffer(device, bytes_of(dtype, shape)) {}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) {
    device_->free_pinned(data_);
  }
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : device_(other.device_),
      data_(std::exchange(other.data_, nullptr)),
      num_bytes_(std::exchange(other.num_bytes_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  PinnedBuffer moved(std::move(other));
  std::swap(device_, moved.device_);
  std::swap(data_, moved.data_);
  std::swap(num_bytes_, moved.num_bytes_);
  return *this;
}

HostView PinnedBuffer::view(Dtype dtype, const Shape& shape, std::int64_t offset_bytes) const {
  return {place(data_, num_bytes_, dtype, shape, offset_bytes), dtype, shape};
}

DeviceView PinnedBuffer::device_view(Dtype dtype, const Shape& shape,
                                     std::int64_t offset_bytes) const {
  return {place(data_, num_bytes_, dtype, shape, offset_bytes), dtype, shape};
}

}  // namespace rigel
