#pragma once

#include "engine/contract/request_info.h"
#include "engine/staging.h"
#include "engine/step_context.h"
#include "tensor/device.h"
#include "tensor/stream.h"

#include <gtest/gtest.h>

#include <memory>

namespace rigel::testing {

/// A device and what a step needs of it.
class EngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Device::available()) {
      GTEST_SKIP() << "no device";
    }
    DeviceOptions options;
    options.num_threads = 2;
    device = Device::open(options);
    stream = std::make_unique<Stream>(*device);
    staging = std::make_unique<StepStaging>(*device, 64 * 1024);
    context = std::make_unique<StepContext>(stream->ref());
    context->staging = staging.get();
  }

  static RequestInfo info_of(std::int32_t row, std::uint32_t generation = 1) {
    RequestInfo info;
    info.handle = {row, generation};
    return info;
  }

  /// The elements of a staged column as the host wrote them.
  template <class T>
  std::vector<T> staged(const ConstDeviceView& view);

  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<StepStaging> staging;
  std::unique_ptr<StepContext> context;
};

}  // namespace rigel::testing

#include "tensor/buffer.h"
#include "tensor/copy.h"

namespace rigel::testing {

template <class T>
std::vector<T> EngineTest::staged(const ConstDeviceView& view) {
  staging->upload(stream->ref());
  PinnedBuffer host(*device, view.num_bytes() + 16);
  const HostView target = host.view(view.dtype(), view.shape());
  if (view.num_elements() > 0) {
    copy(stream->ref(), target, view);
  }
  stream->synchronize();
  const auto elements = target.span<T>();
  return {elements.begin(), elements.end()};
}

}  // namespace rigel::testing
