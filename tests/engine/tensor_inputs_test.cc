// Tensors that rows bring: put together for an eager forward, and in the buffers that captured ones read.

#include "engine/tensor_inputs.h"

#include "tests/engine/device_tensors.h"

#include <gmock/gmock.h>

#include <numeric>

namespace rigel {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using testing::host_ids;

constexpr SignalId kFeatures{3};
constexpr SignalId kMask{4};

class TensorInputsTest : public testing::DeviceTensorTest {
 protected:
  /// (rows, columns), counted from `first`.
  static Tensor matrix(std::int64_t rows, std::int64_t columns, std::int32_t first = 0) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(rows * columns));
    std::iota(ids.begin(), ids.end(), first);
    return host_ids(ids).reshape({rows, columns});
  }
  /// The same on the device.
  [[nodiscard]] Tensor device_matrix(std::int64_t rows, std::int64_t columns,
                                     std::int32_t first = 0) const {
    return device_ids(testing::host_values(matrix(rows, columns, first))).reshape({rows, columns});
  }
  /// The elements of a view of two dimensions, whatever its strides.
  [[nodiscard]] std::vector<std::int32_t> elements(const ConstDeviceView& view) const {
    std::vector<std::int32_t> all;
    for (std::int64_t row = 0; row < view.dim(0); ++row) {
      const ConstDeviceView one = view.select(0, row);
      PinnedBuffer host(*device, one.num_bytes() + 16);
      const HostView target = host.view(Dtype::kI32, one.shape());
      copy(stream(), target, one);
      stream().synchronize();
      const auto span = target.span<std::int32_t>();
      all.insert(all.end(), span.begin(), span.end());
    }
    return all;
  }
  ConstDeviceView put(TensorInputs& inputs, const std::vector<Tensor>& parts, int dim = 0,
                      SignalId signal = kFeatures) const {
    std::vector<kernels::RowSplice> splices;
    const ConstDeviceView whole = inputs.put(stream(), signal, parts, dim, splices);
    for (const kernels::RowSplice& part : splices) {  // what one launch does in a step
      copy(stream(), part.target, part.source);
    }
    return whole;
  }
};

TEST_F(TensorInputsTest, AnEagerStepHasThePartsBehindEachOther) {
  GatheredInputs inputs(*device);
  EXPECT_THAT(elements(put(inputs, {matrix(1, 2), device_matrix(2, 2, 10)})),
              ElementsAre(0, 1, 10, 11, 12, 13));
  EXPECT_THAT(elements(put(inputs, {device_matrix(2, 1), device_matrix(2, 2, 10)}, 1)),
              ElementsAre(0, 10, 11, 1, 12, 13));
  const Tensor alone = device_matrix(2, 2);
  EXPECT_EQ(put(inputs, {alone}).raw(), alone.device_view().raw()) << "nothing is copied";
  EXPECT_THROW(put(inputs, {matrix(1, 2), matrix(1, 3)}), CheckError);
  EXPECT_THROW(put(inputs, {}), CheckError);
  EXPECT_THROW(put(inputs, {matrix(1, 2)}, 2), CheckError);
}

TEST_F(TensorInputsTest, T_CG_2_the_first_capture_sizes_the_buffer_and_smaller_ones_share_it) {
  StaticInputs inputs(*device, 2);
  inputs.begin_capture(0);
  const ConstDeviceView largest = put(inputs, {matrix(5, 3), matrix(3, 3)});
  EXPECT_EQ(largest.shape(), (Shape{8, 3}));
  inputs.begin_capture(1);
  const ConstDeviceView smaller = put(inputs, {matrix(2, 3)});
  EXPECT_EQ(smaller.raw(), largest.raw());
  EXPECT_EQ(smaller.shape(), (Shape{2, 3}));
  EXPECT_EQ(inputs.num_bytes(), 8 * 3 * 4);
  inputs.begin_capture(2);
  EXPECT_THROW(put(inputs, {matrix(9, 3)}), CheckError) << "more than the first";
  EXPECT_THROW(put(inputs, {matrix(2, 4)}), CheckError) << "of another width";
  EXPECT_THROW(put(inputs, {matrix(2, 3)}, 1), CheckError) << "along another dimension";
}

TEST_F(TensorInputsTest, B_05_a_bucket_as_large_as_another_dimension_keeps_the_one_that_grows) {
  StaticInputs inputs(*device, 2);
  inputs.begin_capture(0);
  const ConstDeviceView largest = put(inputs, {matrix(4, 8)}, 1);
  inputs.begin_capture(1);
  const ConstDeviceView square = put(inputs, {matrix(4, 4)}, 1);  // both dimensions are 4
  EXPECT_EQ(square.raw(), largest.raw());
  EXPECT_EQ(square.stride(0), 8) << "a row of it is a row of the largest";
  inputs.begin_replay(1, 0);
  std::ignore = put(inputs, {matrix(4, 1), device_matrix(4, 2, 10)}, 1);
  EXPECT_THAT(elements(square.slice(1, 0, 3)),
              ElementsAre(0, 10, 11, 1, 12, 13, 2, 14, 15, 3, 16, 17));
}

TEST_F(TensorInputsTest, T_CG_4_a_replay_writes_its_own_part_and_a_capture_writes_nothing) {
  StaticInputs inputs(*device, 2);
  inputs.begin_capture(0);
  const ConstDeviceView all = put(inputs, {matrix(4, 2)});
  inputs.begin_replay(0, 0);
  std::ignore = put(inputs, {matrix(4, 2, 50)});
  inputs.begin_capture(1);
  std::ignore = put(inputs, {matrix(3, 2)});
  inputs.begin_replay(0, 1);
  std::ignore = put(inputs, {matrix(1, 2, 7), matrix(0, 2)});
  EXPECT_THAT(elements(all), ElementsAre(7, 8, 52, 53, 54, 55, 56, 57));
}

TEST_F(TensorInputsTest, T_CG_8_a_replay_that_does_not_bring_what_its_capture_reads_says_so) {
  StaticInputs inputs(*device, 2);
  inputs.begin_capture(0);
  std::ignore = put(inputs, {matrix(4, 2)});
  std::ignore = put(inputs, {matrix(4, 1)}, 0, kMask);
  inputs.begin_capture(1);
  std::ignore = put(inputs, {matrix(2, 2)});
  inputs.begin_replay(0, 0);
  std::ignore = put(inputs, {matrix(4, 2)});
  EXPECT_THROW(inputs.check_complete(), CheckError);
  std::ignore = put(inputs, {matrix(1, 1)}, 0, kMask);
  EXPECT_NO_THROW(inputs.check_complete());
  inputs.begin_replay(1, 1);
  EXPECT_THROW(put(inputs, {matrix(3, 2)}), CheckError) << "its capture reads two rows";
  EXPECT_THROW(put(inputs, {matrix(1, 1)}, 0, kMask), CheckError) << "its capture reads none";
  EXPECT_THROW(put(inputs, {matrix(1, 1)}, 0, SignalId{9}), CheckError);
  std::ignore = put(inputs, {matrix(2, 2)});
  EXPECT_NO_THROW(inputs.check_complete());
}

}  // namespace
}  // namespace rigel
