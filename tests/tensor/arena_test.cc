#include "tensor/arena.h"

#include "tests/tensor/device_modes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace rigel {
namespace {

using ::testing::HasSubstr;

TEST(StepArena, GivesAlignedMemoryThatDoesNotOverlap) {
  StepArena arena(4096);
  const auto bytes = arena.span<std::uint8_t>(3);
  const auto doubles = arena.span<double>(5);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(doubles.data()) % alignof(double), 0U);
  EXPECT_GE(reinterpret_cast<std::uint8_t*>(doubles.data()), bytes.data() + 3);
  EXPECT_EQ(doubles.size(), 5U);
}

TEST(StepArena, StartsAnewAtAReset) {
  StepArena arena(4096);
  const auto* first = arena.span<int>(10).data();
  arena.reset();
  EXPECT_EQ(arena.used_bytes(), 0);
  EXPECT_EQ(arena.span<int>(10).data(), first);
}

TEST(StepArena, GrowsOnceAndThenHoldsTheSameStep) {
  StepArena arena(64);
  for (int step = 0; step < 3; ++step) {
    for (int piece = 0; piece < 10; ++piece) {
      const auto span = arena.span<std::int64_t>(100);
      std::fill(span.begin(), span.end(), piece);
    }
    const std::int64_t capacity = arena.capacity_bytes();
    arena.reset();
    EXPECT_EQ(arena.capacity_bytes() == capacity, step > 0) << "step " << step;
  }
}

TEST(StepArena, ServesContainers) {
  StepArena arena(1 << 16);
  std::pmr::vector<int> numbers(&arena);
  for (int value = 0; value < 1000; ++value) {
    numbers.push_back(value);
  }
  EXPECT_EQ(numbers.back(), 999);
  EXPECT_GT(arena.used_bytes(), 4000);
}

class DeviceArenas : public testing::EveryMode {};
INSTANTIATE_TEST_SUITE_P(, DeviceArenas, testing::every_mode(), testing::name_of_mode);

TEST_P(DeviceArenas, CutOneBufferIntoAlignedViews) {
  const Stream stream(device());
  DeviceArena arena(device(), 2048);
  const DeviceView a = arena.take("a", Dtype::kI32, {3});
  const DeviceView b = arena.take("b", Dtype::kBf16, {5, 7});
  EXPECT_EQ(b.raw() - a.raw(), 256);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.raw()) % 256, 0U);
  EXPECT_EQ(arena.used_bytes(), 512);
  EXPECT_EQ(DeviceArena::bytes_for(Dtype::kF32, {65}), 512);
  ASSERT_EQ(arena.pieces().size(), 2U);
  EXPECT_STREQ(arena.pieces()[1].name, "b");
  fill_bytes(stream, b, 1);
  stream.synchronize();
  arena.rewind(256);
  EXPECT_EQ(arena.take("c", Dtype::kU8, {1}).raw(), b.raw());
}

TEST_P(DeviceArenas, SayWhatIsTooBig) {
  DeviceArena arena(device(), 1024);
  static_cast<void>(arena.take("a", Dtype::kU8, {700}));
  try {
    static_cast<void>(arena.take("logits", Dtype::kF32, {100}));
    FAIL() << "it does not fit";
  } catch (const CheckError& error) {
    EXPECT_THAT(error.what(), HasSubstr("logits needs 512 bytes, 768 of 1024 are used"));
  }
}

}  // namespace
}  // namespace rigel
