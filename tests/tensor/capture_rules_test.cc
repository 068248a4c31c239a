// What CUDA forbids is refused: planted faults.

#include "tensor/allocator.h"
#include "tensor/event.h"
#include "tensor/graph.h"
#include "tests/tensor/device_modes.h"
#include "tests/tensor/kernels_for_tests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace rigel {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class CaptureRules : public testing::EveryMode {
 protected:
  // `forbidden` is refused with `code` during a capture; the capture is lost, and the next one works.
  template <class Call>
  void expect_refused(const char* code, Call forbidden) {
    const Stream stream(device());
    const DeviceBuffer x(device(), Dtype::kI32, {8});
    {
      GraphCapture capture(stream);
      testing::scale_add(stream, view(x), 1, 1);
      EXPECT_THAT(testing::error_of([&] { forbidden(stream); }), HasSubstr(code));
      EXPECT_THAT(testing::error_of([&] { static_cast<void>(capture.end()); }),
                  HasSubstr("cudaErrorStreamCaptureInvalidated (901)"));
    }
    EXPECT_FALSE(stream.is_capturing());
    GraphCapture next(stream);
    testing::scale_add(stream, view(x), 1, 1);
    EXPECT_EQ(next.end().num_nodes(), 1);
  }
};
INSTANTIATE_TEST_SUITE_P(, CaptureRules, testing::every_mode(), testing::name_of_mode);

constexpr const char* kUnsupported = "cudaErrorStreamCaptureUnsupported (900)";

TEST_P(CaptureRules, ASynchroniseIsRefused) {
  expect_refused(kUnsupported, [](const Stream& stream) { stream.synchronize(); });
}

TEST_P(CaptureRules, AQueryIsRefused) {
  expect_refused(kUnsupported, [](const Stream& stream) { static_cast<void>(stream.query()); });
}

TEST_P(CaptureRules, ADeviceSynchroniseIsRefused) {
  expect_refused(kUnsupported, [](const Stream& stream) { stream.device().synchronize(); });
}

TEST_P(CaptureRules, ADeviceAllocationIsRefused) {
  expect_refused(kUnsupported, [](const Stream& stream) {
    const DeviceBuffer refused(stream.device(), Dtype::kI32, {8});
  });
}

TEST_P(CaptureRules, APinnedAllocationIsRefused) {
  expect_refused(kUnsupported, [](const Stream& stream) {
    const PinnedBuffer refused(stream.device(), Dtype::kI32, {8});
  });
}

TEST_P(CaptureRules, AnAllocationFromTheCacheIsRefusedToo) {
  const Stream stream(device());
  CachingAllocator allocator(device());
  const GraphCapture capture(stream);
  EXPECT_THAT(
      testing::error_of([&] { static_cast<void>(allocator.allocate(stream, Dtype::kI32, {8})); }),
      HasSubstr("GraphPool"));
}

TEST_P(CaptureRules, AFreeLosesTheCapture) {
  const Stream stream(device());
  auto doomed = std::make_unique<DeviceBuffer>(device(), Dtype::kI32, Shape{8});
  GraphCapture capture(stream);
  doomed.reset();
  EXPECT_THAT(testing::error_of([&] { static_cast<void>(capture.end()); }),
              HasSubstr("a free during a capture"));
}

TEST_P(CaptureRules, ACopyOfPageableMemoryIsRefused) {
  const DeviceBuffer x(device(), Dtype::kI32, {8});
  std::vector<std::int32_t> pageable(8);
  expect_refused(kUnsupported, [&](const Stream& stream) {
    copy(stream, view(x), host_view(std::span(pageable)));
  });
  expect_refused(kUnsupported, [&](const Stream& stream) {
    copy(stream, host_view(std::span(pageable)), view(x));
  });
}

TEST_P(CaptureRules, AnEventFromOutsideIsRefused) {
  const Stream other(device());
  const Event event(device());
  const DeviceBuffer x(device(), Dtype::kI32, {8});
  fill_bytes(other, view(x), 0);
  event.record(other);
  expect_refused("cudaErrorStreamCaptureIsolation (905)",
                 [&](const Stream& stream) { stream.wait(event); });
}

TEST_P(CaptureRules, ASecondBeginIsRefused) {
  expect_refused(kUnsupported, [](const Stream& stream) { const GraphCapture again(stream); });
}

TEST_P(CaptureRules, TwoCapturesDoNotMerge) {
  const Stream first(device());
  const Stream second(device());
  const Event event(device());
  const GraphCapture capture_first(first);
  const GraphCapture capture_second(second);
  event.record(first);
  EXPECT_THAT(testing::error_of([&] { second.wait(event); }),
              HasSubstr("cudaErrorStreamCaptureMerge (902)"));
}

TEST_P(CaptureRules, AnUnjoinedBranchIsRefusedAtTheEnd) {
  const Stream stream(device());
  const Stream branch(device());
  const Event fork(device());
  const DeviceBuffer x(device(), Dtype::kI32, {8});
  GraphCapture capture(stream);
  testing::scale_add(stream, view(x), 1, 1);
  fork.record(stream);
  branch.wait(fork);
  testing::scale_add(branch, view(x), 1, 1);
  EXPECT_THAT(testing::error_of([&] { static_cast<void>(capture.end()); }),
              HasSubstr("cudaErrorStreamCaptureUnjoined (904)"));
  EXPECT_FALSE(branch.is_capturing());
}

TEST_P(CaptureRules, AnEventOfACaptureHasNothingToSay) {
  const Stream stream(device());
  const Event event(device());
  const DeviceBuffer x(device(), Dtype::kI32, {8});
  {
    GraphCapture capture(stream);
    testing::scale_add(stream, view(x), 1, 1);
    event.record(stream);
    static_cast<void>(capture.end());
  }
  EXPECT_THAT(testing::error_of([&] { event.synchronize(); }),
              HasSubstr("cudaErrorCapturedEvent (907)"));
  EXPECT_THAT(testing::error_of([&] { static_cast<void>(event.query()); }),
              HasSubstr("cudaErrorCapturedEvent (907)"));
}

TEST_P(CaptureRules, AnotherThreadMayAllocateAndSynchroniseItsOwn) {
  const Stream stream(device());
  const DeviceBuffer x(device(), Dtype::kI32, {8});
  GraphCapture capture(stream);
  testing::scale_add(stream, view(x), 1, 1);
  std::string error;
  std::thread([&] {
    error = testing::error_of([&] {
      const Stream own(device());
      const DeviceBuffer y(device(), Dtype::kI32, {8});
      fill_bytes(own, view(y), 0);
      own.synchronize();
    });
  }).join();
  EXPECT_EQ(error, "no DeviceError");
  EXPECT_EQ(capture.end().num_nodes(), 1);
}

TEST_P(CaptureRules, AnotherThreadMayNotEndTheCapture) {
  const Stream stream(device());
  const DeviceBuffer x(device(), Dtype::kI32, {8});
  GraphCapture capture(stream);
  std::string error;
  std::thread([&] { error = testing::error_of([&] { static_cast<void>(capture.end()); }); }).join();
  EXPECT_THAT(error, HasSubstr("cudaErrorStreamCaptureWrongThread (908)"));
}

TEST_P(CaptureRules, ATensorFreedInACaptureIsReusedOnlyAfterIt) {
  const Stream stream(device());
  CachingAllocator allocator(device());
  Tensor tensor = allocator.allocate(stream, Dtype::kI32, {8});
  const std::byte* address = tensor.device_view().raw();
  GraphCapture capture(stream);
  testing::scale_add(stream, tensor.device_view(), 1, 1);
  tensor = Tensor();
  EXPECT_EQ(capture.end().num_nodes(), 1);
  const Tensor next = allocator.allocate(stream, Dtype::kI32, {8});
  EXPECT_EQ(next.device_view().raw(), address);
}

class MemoryRules : public testing::EveryMode {
 protected:
  void SetUp() override {
    EveryMode::SetUp();
    if (!IsSkipped() && device().is_cuda()) {
      GTEST_SKIP() << "of the virtual device";
    }
  }
};
INSTANTIATE_TEST_SUITE_P(, MemoryRules, testing::every_mode(), testing::name_of_mode);

TEST_P(MemoryRules, ACopyFromFreedMemoryIsSeen) {
  const Stream stream(device());
  const PinnedBuffer out = counting(8);
  DeviceView freed;
  {
    const DeviceBuffer x(device(), Dtype::kI32, {8});
    freed = view(x);
  }
  EXPECT_THAT(testing::error_of([&] {
                copy(stream, view(out), freed);
                stream.synchronize();
              }),
              AllOf(HasSubstr("cudaErrorIllegalAddress (700)"), HasSubstr("freed memory")));
}

TEST_P(MemoryRules, AFillOfAFreedTensorIsSeen) {
  const Stream stream(device());
  CachingAllocator allocator(device());
  Tensor tensor = allocator.allocate(stream, Dtype::kI32, {8});
  const DeviceView freed = tensor.device_view();
  fill_bytes(stream, freed, 0);
  tensor = Tensor();
  EXPECT_THAT(testing::error_of([&] {
                fill_bytes(stream, freed, 1);
                stream.synchronize();
              }),
              HasSubstr("freed memory"));
}

TEST_P(MemoryRules, ACopyPastTheEndIsSeen) {
  const Stream stream(device());
  const PinnedBuffer out = counting(16);
  const DeviceBuffer x(device(), Dtype::kI32, {8});
  EXPECT_THAT(testing::error_of([&] {
                copy(stream, view(out), DeviceView(x.raw(), Dtype::kI32, {16}));
                stream.synchronize();
              }),
              HasSubstr("past the end of its allocation"));
}

TEST_P(MemoryRules, ACopyFromTheHostsOwnMemoryIsSeen) {
  const Stream stream(device());
  const PinnedBuffer out = counting(8);
  std::vector<std::int32_t> host(8);
  EXPECT_THAT(testing::error_of([&] {
                copy(stream, view(out),
                     DeviceView(host_view(std::span(host)).raw(), Dtype::kI32, {8}));
                stream.synchronize();
              }),
              HasSubstr("not allocated on the device"));
}

TEST_P(MemoryRules, FreshDeviceMemoryIsNan) {
  const Stream stream(device());
  const PinnedBuffer out(device(), Dtype::kF32, {100});
  const DeviceBuffer x(device(), Dtype::kF32, {100});
  copy(stream, out.view(Dtype::kF32, {100}), x.view(Dtype::kF32, {100}));
  stream.synchronize();
  EXPECT_THAT(out.view(Dtype::kF32, {100}).span<float>(), Each(::testing::IsNan()));
}

TEST_P(MemoryRules, ACopysTargetIsGarbageUntilTheCopyHasRun) {
  if (GetParam() != DeviceMode::kLazy) {
    GTEST_SKIP() << "a race in the other modes";
  }
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer reports the read: see the death test";
#endif
  const Stream stream(device());
  const Event event(device());
  const PinnedBuffer out = counting(8);
  const DeviceBuffer x(device(), Dtype::kI32, {8});
  fill_bytes(stream, view(x), 0);
  copy(stream, view(out), view(x));
  event.record(stream);
  EXPECT_THAT(ints(out), Each(-1));
  event.synchronize();
  EXPECT_THAT(ints(out), Each(0));
}

#if defined(__SANITIZE_ADDRESS__)
TEST(MemoryRulesDeathTest, AReadOfACopysTargetBeforeItsEventIsReported) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        DeviceOptions options;
        options.mode = DeviceMode::kLazy;
        const auto device = Device::open(options);
        const Stream stream(*device);
        const PinnedBuffer out(*device, Dtype::kI32, {8});
        const DeviceBuffer x(*device, Dtype::kI32, {8});
        copy(stream, out.view(Dtype::kI32, {8}), x.view(Dtype::kI32, {8}));
        const auto values = out.view(Dtype::kI32, {8}).span<std::int32_t>();
        std::exit(values[0] == 0 ? 1 : 2);
      },
      "use-after-poison");
}

TEST(MemoryRulesDeathTest, AKernelThatTouchesAFreedTensorIsReported) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const auto device = Device::open({});
        const Stream stream(*device);
        CachingAllocator allocator(*device);
        Tensor tensor = allocator.allocate(stream, Dtype::kI32, {8});
        const DeviceView freed = tensor.device_view();
        tensor = Tensor();
        testing::scale_add(stream, freed, 1, 1);
        stream.synchronize();
      },
      "use-after-poison");
}
#endif

TEST_P(MemoryRules, DoubleAsManyBytesAsTheDeviceHasAreRefused) {
  EXPECT_THAT(testing::error_of(
                  [&] { const DeviceBuffer huge(device(), 2 * device().total_memory_bytes()); }),
              HasSubstr("cudaErrorMemoryAllocation (2)"));
  EXPECT_EQ(device().try_allocate(2 * device().total_memory_bytes()), nullptr);
}

}  // namespace
}  // namespace rigel
