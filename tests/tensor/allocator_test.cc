#include "tensor/allocator.h"

#include "tensor/block_cache.h"
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

TEST(SizeClasses, HoldTheirBytesAndWasteAtMostAFifth) {
  int previous = 0;
  for (std::int64_t bytes = 1; bytes < (std::int64_t{1} << 41); bytes += bytes / 37 + 1) {
    const int size_class = detail::size_class_of(bytes);
    const std::int64_t block = detail::bytes_of_size_class(size_class);
    ASSERT_GE(block, bytes);
    ASSERT_TRUE(bytes <= 512 ||
                static_cast<double>(block - bytes) < 0.2 * static_cast<double>(block))
        << bytes << " in a block of " << block;
    ASSERT_GE(size_class, previous);
    ASSERT_LT(size_class, detail::kNumSizeClasses);
    previous = size_class;
  }
}

TEST(SizeClasses, MapTheirOwnSizeToThemselves) {
  for (int size_class = 0; size_class < 120; ++size_class) {
    const std::int64_t block = detail::bytes_of_size_class(size_class);
    EXPECT_EQ(detail::size_class_of(block), size_class);
    EXPECT_EQ(detail::size_class_of(block + 1), size_class + 1);
  }
}

class Allocators : public testing::EveryMode {};
INSTANTIATE_TEST_SUITE_P(, Allocators, testing::every_mode(), testing::name_of_mode);

TEST_P(Allocators, ReuseABlockOnTheSameStreamAtOnce) {
  const Stream stream(device());
  const PinnedBuffer out = counting(100);
  CachingAllocator allocator(device());
  for (int turn = 0; turn < 20; ++turn) {
    const Tensor tensor = allocator.allocate(stream, Dtype::kI32, {100});
    fill_bytes(stream, tensor.device_view(), 0);
    testing::scale_add(stream, tensor.device_view(), 1, turn);
    copy(stream, view(out), tensor.device_view());
    if (turn % 3 == 0) {
      stream.synchronize();
      EXPECT_THAT(ints(out), Each(turn));
    }
  }
  EXPECT_EQ(allocator.stats().num_device_calls, 1);
  EXPECT_EQ(allocator.stats().live_bytes, 0);
  EXPECT_EQ(allocator.stats().cached_bytes, 512);
  stream.synchronize();
}

TEST_P(Allocators, DoNotShareBlocksBetweenStreams) {
  const Stream first(device());
  const Stream second(device());
  CachingAllocator allocator(device());
  const std::byte* address = allocator.allocate(first, Dtype::kI32, {8}).device_view().raw();
  EXPECT_NE(allocator.allocate(second, Dtype::kI32, {8}).device_view().raw(), address);
  EXPECT_EQ(allocator.allocate(first, Dtype::kI32, {8}).device_view().raw(), address);
}

TEST_P(Allocators, ReuseWaitsForTheOtherStreamThatUsedTheTensor) {
  const Stream first(device());
  const Stream second(device());
  const Event ready(device());
  const PinnedBuffer out = counting(1000);
  CachingAllocator allocator(device());
  for (int turn = 0; turn < 50; ++turn) {
    {
      const Tensor tensor = allocator.allocate(first, Dtype::kI32, {1000});
      fill_bytes(first, tensor.device_view(), 0);
      testing::scale_add(first, tensor.device_view(), 1, turn);
      ready.record(first);
      second.wait(ready);
      testing::scale_add(second, tensor.device_view(), 2, 0);
      copy(second, view(out), tensor.device_view());
      tensor.used_on(second);
    }
    const Tensor next = allocator.allocate(first, Dtype::kI32, {1000});
    fill_bytes(first, next.device_view(), 0x77);
    second.synchronize();
    ASSERT_THAT(ints(out), Each(2 * turn));
  }
}

TEST_P(Allocators, TrimGivesCachedBlocksBack) {
  const Stream stream(device());
  CachingAllocator allocator(device());
  const std::int64_t before = device().free_memory_bytes();
  const Tensor kept = allocator.allocate(stream, Dtype::kU8, {1000});
  static_cast<void>(allocator.allocate(stream, Dtype::kU8, {1 << 20}));
  EXPECT_EQ(allocator.stats().cached_bytes, 1 << 20);
  allocator.trim();
  EXPECT_EQ(allocator.stats().cached_bytes, 0);
  EXPECT_EQ(allocator.stats().live_bytes, 1024);
  if (!device().is_cuda()) {
    EXPECT_EQ(device().free_memory_bytes(), before - 1024);
  }
}

TEST_P(Allocators, TrimWhenMemoryRunsOutAndThenGiveUp) {
  if (device().is_cuda()) {
    GTEST_SKIP() << "would take all of the GPU";
  }
  const Stream stream(device());
  CachingAllocator allocator(device());
  const std::int64_t half = device().total_memory_bytes() / 2;
  static_cast<void>(allocator.allocate(stream, Dtype::kU8, {1 << 20}));
  const void* all_but_little = device().try_allocate(0);
  EXPECT_EQ(all_but_little, nullptr);
  EXPECT_FALSE(allocator.try_allocate(stream, Dtype::kU8, {3 * half}).defined());
  EXPECT_EQ(allocator.stats().cached_bytes, 0);
  EXPECT_THAT(testing::error_of(
                  [&] { static_cast<void>(allocator.allocate(stream, Dtype::kU8, {3 * half})); }),
              ::testing::HasSubstr("out of device memory"));
}

TEST_P(Allocators, TensorsMayEndOnOtherThreads) {
  const Stream stream(device());
  CachingAllocator allocator(device());
  for (int turn = 0; turn < 20; ++turn) {
    Tensor tensor = allocator.allocate(stream, Dtype::kI32, {100});
    fill_bytes(stream, tensor.device_view(), 0);
    if (GetParam() == DeviceMode::kThreaded) {
      std::thread([moved = std::move(tensor)] {}).join();
    }
  }
  stream.synchronize();
  EXPECT_EQ(allocator.stats().live_bytes, 0);
}

TEST_P(Allocators, PinnedBlocksAreReusedAndPinned) {
  const Stream stream(device());
  PinnedPool pool(device());
  const std::byte* address = pool.allocate(Dtype::kI32, {8}).host_view().raw();
  const Tensor tensor = pool.allocate(Dtype::kI32, {16});
  EXPECT_EQ(tensor.host_view().raw(), address);
  EXPECT_EQ(pool.stats().num_device_calls, 1);
  const DeviceBuffer x(device(), Dtype::kI32, {16});
  GraphCapture capture(stream);
  copy(stream, view(x), tensor.host_view());
  EXPECT_EQ(capture.end().num_nodes(), 1);
}

}  // namespace
}  // namespace rigel
