#include "engine/host_row_ring.h"

#include "tests/engine/device_tensors.h"

#include <gmock/gmock.h>

namespace rigel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr SignalId kToken{1};
constexpr SignalId kStop{2};

std::vector<RequestHandle> handles_of(const std::vector<std::int32_t>& rows) {
  std::vector<RequestHandle> handles;
  for (const std::int32_t row : rows) {
    handles.push_back({row, 1});
  }
  return handles;
}

class HostRowRingTest : public testing::DeviceTensorTest {
 protected:
  void SetUp() override {
    DeviceTensorTest::SetUp();
    if (!IsSkipped()) {
      ring = std::make_unique<HostRowRing>(*device);
    }
  }
  [[nodiscard]] static BatchedModelOutput output_of(const Tensor& rows,
                                                    const std::vector<std::int32_t>& requests) {
    BatchedModelOutput output;
    output.add_rows(kToken, rows.device_view());
    output.set_row_handles(handles_of(requests));
    return output;
  }
  void stage(Epoch epoch, const BatchedModelOutput& output) {
    ring->begin(epoch, 1);
    ring->stage(stream(), output);
  }
  [[nodiscard]] std::vector<std::int32_t> tokens(Epoch epoch, SignalId signal = kToken) const {
    stream().synchronize();
    const auto span = ring->rows(epoch).find(signal).span<const std::int32_t>();
    return {span.begin(), span.end()};
  }
  std::unique_ptr<HostRowRing> ring;
};

TEST_F(HostRowRingTest, T_HR_3_rows_stay_while_the_next_three_steps_stage_theirs) {
  std::vector<Tensor> kept;
  for (std::int32_t epoch = 1; epoch <= 4; ++epoch) {
    kept.push_back(device_ids({epoch, epoch * 10}));
    stage(static_cast<Epoch>(epoch), output_of(kept.back(), {0, 1}));
  }
  for (std::int32_t epoch = 1; epoch <= 4; ++epoch) {
    EXPECT_THAT(tokens(static_cast<Epoch>(epoch)), ElementsAre(epoch, epoch * 10));
  }
  stage(5, output_of(kept[0], {0, 1}));
  EXPECT_THROW(std::ignore = ring->rows(1), CheckError);
  EXPECT_THAT(tokens(2), ElementsAre(2, 20));
}

TEST_F(HostRowRingTest, C_8_a_step_with_larger_rows_moves_nobody_elses) {
  const Tensor small = device_ids({1});
  const Tensor large = device_ids(std::vector<std::int32_t>(5000, 7));
  stage(1, output_of(small, {0}));
  const HostRows before = ring->rows(1);
  stage(2, output_of(large, {0}));
  stage(3, output_of(large, {0}));
  EXPECT_THAT(tokens(1), ElementsAre(1));
  EXPECT_EQ(before.find(kToken).raw(), ring->rows(1).find(kToken).raw());
}

TEST_F(HostRowRingTest, T_HR_2_padded_rows_come_along_and_belong_to_nobody) {
  const Tensor rows = device_ids({4, 5, -1, -1});
  stage(1, output_of(rows, {2, 3}));
  EXPECT_THAT(tokens(1), ElementsAre(4, 5, -1, -1));
  EXPECT_EQ(ring->rows(1).handles.size(), 2u);
  EXPECT_EQ(ring->rows(1).row_of({-1, 0}), -1);
}

TEST_F(HostRowRingTest, B_58_two_buffers_of_one_size_have_memory_of_their_own) {
  const Tensor first = device_ids({1, 2});
  const Tensor second = device_ids({3, 4});
  BatchedModelOutput output = output_of(first, {0, 1});
  output.add_rows(kStop, second.reshape({1, 2}).device_view());
  stage(1, output);
  EXPECT_THAT(tokens(1), ElementsAre(1, 2));
  EXPECT_THAT(tokens(1, kStop), ElementsAre(3, 4));
}

TEST_F(HostRowRingTest, T_BO_10_rows_that_are_stop_buffers_too_travel_once) {
  const Tensor rows = device_ids({1, 2});
  const Tensor flags = device_ids({0, 1});
  BatchedModelOutput output = output_of(rows, {0, 1});
  output.set_stop_buffers({{kToken, rows}, {SignalId{5}, rows}, {kStop, flags}});
  stage(1, output);
  const HostRows staged = ring->rows(1);
  EXPECT_EQ(staged.buffers.size(), 3u);
  EXPECT_EQ(staged.find(SignalId{5}).raw(), staged.find(kToken).raw());
  EXPECT_THAT(tokens(1, SignalId{5}), ElementsAre(1, 2));
  EXPECT_THAT(tokens(1, kStop), ElementsAre(0, 1));
}

TEST_F(HostRowRingTest, T_BO_9_rows_are_stamped_with_the_order_of_their_forward) {
  const Tensor rows = device_ids({7, 8, 9});
  std::vector<RequestHandle> batch = handles_of({5, 1, 3});
  BatchedModelOutput output;
  output.add_rows(kToken, rows.device_view());
  output.set_row_handles(batch);
  stage(1, output);
  batch.erase(batch.begin());  // the worker's own list goes on without request 5
  EXPECT_THAT(ring->rows(1).handles, ::testing::ElementsAreArray(handles_of({5, 1, 3})));
  EXPECT_EQ(ring->rows(1).row_of({3, 1}), 2);
}

TEST_F(HostRowRingTest, T_HR_1_rows_of_several_forwards_follow_each_other) {
  const Tensor first = device_ids({1});
  const Tensor second = device_ids({2});
  ring->begin(1, 3);
  ring->stage(stream(), output_of(first, {4}));
  BatchedModelOutput nothing;
  nothing.set_row_handles(handles_of({5}));
  ring->stage(stream(), nothing);
  ring->stage(stream(), output_of(second, {6}));
  const std::vector<std::int32_t> all = tokens(1);
  EXPECT_EQ(all[0], 1);
  EXPECT_EQ(all[2], 2);
  EXPECT_EQ(ring->rows(1).row_of({6, 1}), 2);
}

TEST_F(HostRowRingTest, T_HR_1_forwards_whose_rows_differ_are_refused_by_signal) {
  const Tensor narrow = device_ids({1});
  const Tensor wide = device_ids({2, 3});
  ring->begin(1, 2);
  ring->stage(stream(), output_of(narrow, {4}));
  BatchedModelOutput other;
  other.add_rows(kToken, wide.reshape({1, 2}).device_view());
  other.set_row_handles(handles_of({5}));
  EXPECT_THROW(ring->stage(stream(), other), CheckError);
  BatchedModelOutput more = output_of(wide, {6});
  EXPECT_THROW(ring->stage(stream(), more), CheckError) << "one lane gives one row";
}

TEST_F(HostRowRingTest, T_HR_3_a_step_without_rows_has_none) {
  stage(1, BatchedModelOutput());
  EXPECT_THAT(ring->rows(1).handles, IsEmpty());
  EXPECT_FALSE(ring->rows(1).find(kToken).defined());
}

}  // namespace
}  // namespace rigel
