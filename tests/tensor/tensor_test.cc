#include "tensor/tensor.h"

#include "tensor/allocator.h"
#include "tests/tensor/device_modes.h"
#include "tests/tensor/kernels_for_tests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rigel {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Counts what comes back.
class CountingOwner final : public StorageOwner {
 public:
  void give_back(Storage&) const noexcept override { ++num_returned; }
  mutable int num_returned = 0;
};

struct OnStack {
  CountingOwner owner;
  std::array<std::byte, 64> memory{};
  Storage storage;
  OnStack() {
    storage.data = memory.data();
    storage.num_bytes = 64;
    storage.owner = &owner;
  }
};

TEST(Tensor, ReturnsItsStorageWithTheLastHandle) {
  OnStack block;
  {
    Tensor first(block.storage, Dtype::kI32, {4, 4});
    const Tensor second = first;
    Tensor third = std::move(first);
    EXPECT_FALSE(first.defined());  // NOLINT(bugprone-use-after-move): what a moved-from handle is
    const Tensor row = third.select(0, 1);
    third = Tensor();
    EXPECT_TRUE(row.shares_storage_with(second));
    EXPECT_EQ(block.owner.num_returned, 0);
  }
  EXPECT_EQ(block.owner.num_returned, 1);
}

TEST(Tensor, AssignmentToItselfKeepsIt) {
  OnStack block;
  Tensor tensor(block.storage, Dtype::kI32, {4});
  const Tensor& same = tensor;
  tensor = same;
  EXPECT_TRUE(tensor.defined());
  EXPECT_EQ(block.owner.num_returned, 0);
}

TEST(Tensor, DoesNotExceedItsStorage) {
  OnStack block;
  EXPECT_THROW(Tensor(block.storage, Dtype::kI32, {17}), CheckError);
}

TEST(Tensor, CopiesHostElements) {
  std::vector<std::int32_t> values{1, 2, 3, 4, 5, 6};
  const Tensor tensor = Tensor::copy_of(std::span<const std::int32_t>(values));
  values.assign(6, 0);
  EXPECT_EQ(tensor.space(), Space::kHost);
  EXPECT_EQ(tensor.shape(), Shape({6}));
  const Tensor table = tensor.reshape({2, 3});
  EXPECT_THAT(table.select(0, 1).host_view().span<std::int32_t>(), ElementsAre(4, 5, 6));
  EXPECT_THAT(tensor.slice(0, 1, 2).host_view().span<const std::int32_t>(), ElementsAre(2, 3));
  const Tensor column = table.select(1, 2);
  EXPECT_EQ(column.dim(0), 2);
  EXPECT_FALSE(column.is_contiguous());
  EXPECT_EQ(column.host_view().stride(0), 3);
  EXPECT_THROW(static_cast<void>(column.host_view().span<std::int32_t>()), CheckError);
}

TEST(Tensor, MayBeEmpty) {
  const Tensor tensor = Tensor::copy_of(std::span<const float>());
  EXPECT_TRUE(tensor.defined());
  EXPECT_EQ(tensor.num_elements(), 0);
}

TEST(Tensor, ShowsOnlyTheSpaceItIsIn) {
  const float value = 1;
  const Tensor tensor = Tensor::copy_of(std::span<const float>(&value, 1));
  EXPECT_THROW(static_cast<void>(tensor.device_view()), CheckError);
  EXPECT_THROW(static_cast<void>(Tensor().host_view()), CheckError);
}

class DeviceTensors : public testing::EveryMode {};
INSTANTIATE_TEST_SUITE_P(, DeviceTensors, testing::every_mode(), testing::name_of_mode);

TEST_P(DeviceTensors, AreClonedInStreamOrder) {
  const Stream stream(device());
  CachingAllocator allocator(device());
  const PinnedBuffer out = counting(8);
  const Tensor tensor = allocator.allocate(stream, Dtype::kI32, {8});
  fill_bytes(stream, tensor.device_view(), 0);
  testing::scale_add(stream, tensor.device_view(), 1, 5);
  const Tensor clone = tensor.clone(stream, allocator);
  testing::scale_add(stream, tensor.device_view(), 1, 5);
  copy(stream, view(out), clone.device_view());
  stream.synchronize();
  EXPECT_FALSE(clone.shares_storage_with(tensor));
  EXPECT_THAT(ints(out), Each(5));
  EXPECT_THROW(static_cast<void>(clone.host_view()), CheckError);
}

}  // namespace
}  // namespace rigel
