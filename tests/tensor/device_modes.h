#pragma once

// Tests of tensor/ run in every mode of the virtual device: threaded, eager and lazy. On CUDA once.

#include "tensor/buffer.h"
#include "tensor/copy.h"
#include "tensor/device.h"
#include "tensor/stream.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace rigel::testing {

class EveryMode : public ::testing::TestWithParam<DeviceMode> {
 protected:
  void SetUp() override {
    if (!Device::available()) {
      GTEST_SKIP() << "no device";
    }
    DeviceOptions options;
    options.mode = GetParam();
    options.num_threads = 2;
    device_ = Device::open(options);
  }

  [[nodiscard]] Device& device() { return *device_; }

  /// Pinned memory that holds 0, 1, 2, ...
  [[nodiscard]] PinnedBuffer counting(std::int64_t num_elements) {
    PinnedBuffer buffer(device(), Dtype::kI32, {num_elements});
    const auto elements = ints(buffer);
    std::iota(elements.begin(), elements.end(), 0);
    return buffer;
  }
  [[nodiscard]] static std::span<std::int32_t> ints(const PinnedBuffer& buffer) {
    return view(buffer).span<std::int32_t>();
  }
  [[nodiscard]] static HostView view(const PinnedBuffer& buffer) {
    return buffer.view(Dtype::kI32, {buffer.num_bytes() / 4});
  }
  [[nodiscard]] static DeviceView view(const DeviceBuffer& buffer) {
    return buffer.view(Dtype::kI32, {buffer.num_bytes() / 4});
  }

 private:
  std::unique_ptr<Device> device_;
};

inline std::string name_of_mode(const ::testing::TestParamInfo<DeviceMode>& info) {
  switch (info.param) {
    case DeviceMode::kThreaded:
      return "Threaded";
    case DeviceMode::kEager:
      return "Eager";
    case DeviceMode::kLazy:
      return "Lazy";
    case DeviceMode::kNull:
      return "Null";
  }
  return "Unknown";
}

inline auto every_mode() {
#if defined(RIGEL_DEVICE_CUDA)
  return ::testing::Values(DeviceMode::kThreaded);
#else
  return ::testing::Values(DeviceMode::kThreaded, DeviceMode::kEager, DeviceMode::kLazy);
#endif
}

/// The message of the DeviceError that `call` throws, or "no DeviceError".
template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "no DeviceError";
}

}  // namespace rigel::testing
