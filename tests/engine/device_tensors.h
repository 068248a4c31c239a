#pragma once

#include "tensor/allocator.h"
#include "tensor/buffer.h"
#include "tensor/copy.h"
#include "tensor/device.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace rigel::testing {

inline Tensor host_ids(const std::vector<std::int32_t>& ids) {
  return Tensor::copy_of(std::span<const std::int32_t>(ids));
}

inline std::vector<std::int32_t> host_values(const Tensor& tensor) {
  const auto span = tensor.host_view().span<std::int32_t>();
  return {span.begin(), span.end()};
}

/// Counts what it is asked for.
class CountingAllocator final : public TensorAllocator {
 public:
  explicit CountingAllocator(Device& device) : allocator_(device) {}
  Tensor allocate(StreamRef stream, Dtype dtype, const Shape& shape) override {
    ++num_tensors;
    num_elements += shape.num_elements();
    return allocator_.allocate(stream, dtype, shape);
  }

  int num_tensors = 0;
  std::int64_t num_elements = 0;

 private:
  CachingAllocator allocator_;
};

/// Tensors of i32 on a device, written and read in stream order.
class DeviceTensorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Device::available()) {
      GTEST_SKIP() << "no device";
    }
    DeviceOptions options;
    options.num_threads = 2;
    device = Device::open(options);
    stream_owner = std::make_unique<Stream>(*device);
    allocator = std::make_unique<CountingAllocator>(*device);
  }
  [[nodiscard]] StreamRef stream() const { return stream_owner->ref(); }

  [[nodiscard]] Tensor device_ids(const std::vector<std::int32_t>& ids) const {
    Tensor tensor =
        allocator->allocate(stream(), Dtype::kI32, {static_cast<std::int64_t>(ids.size())});
    write(tensor, ids);
    return tensor;
  }
  void write(const Tensor& tensor, const std::vector<std::int32_t>& ids) const {
    copy(stream(), tensor.device_view(), const_host_view(std::span<const std::int32_t>(ids)));
    stream().synchronize();
  }
  [[nodiscard]] std::vector<std::int32_t> values(const Tensor& tensor) const {
    PinnedBuffer host(*device, tensor.num_elements() * 4 + 16);
    const HostView target = host.view(Dtype::kI32, tensor.shape());
    copy(stream(), target, tensor.device_view());
    stream().synchronize();
    const auto span = target.span<std::int32_t>();
    return {span.begin(), span.end()};
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream_owner;
  std::unique_ptr<CountingAllocator> allocator;
};

}  // namespace rigel::testing
