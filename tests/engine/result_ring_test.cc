#include "engine/result_ring.h"

#include "tensor/graph.h"
#include "tests/engine/device_tensors.h"

#include <gmock/gmock.h>

#include <cstring>
#include <optional>

namespace rigel {
namespace {

using kernels::StepRecord;
using kernels::StopRow;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr SignalId kRingToken{1};
constexpr SignalId kRingStop{2};
constexpr SignalId kRingRecords{3};
constexpr std::int64_t kRingEntryBytes = 1024;
constexpr std::int64_t kRingLanes = 6;
constexpr std::int64_t kRingRows = 8;
constexpr std::int32_t kRingEos = 2;

std::vector<RequestHandle> requests_of(const std::vector<std::int32_t>& rows) {
  std::vector<RequestHandle> handles;
  for (const std::int32_t row : rows) {
    handles.push_back({row, 1});
  }
  return handles;
}

class ResultRingTest : public testing::DeviceTensorTest {
 protected:
  void SetUp() override {
    DeviceTensorTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    ring = std::make_unique<ResultRing>(*device, kRingEntryBytes);
    step_ = DeviceBuffer(*device, Dtype::kI64, {1});
  }
  [[nodiscard]] static BatchedModelOutput output_of(const Tensor& rows,
                                                    const std::vector<std::int32_t>& requests) {
    BatchedModelOutput output;
    output.add_rows(kRingToken, rows.device_view());
    output.set_row_handles(requests_of(requests));
    return output;
  }
  [[nodiscard]] ConstDeviceView step() const { return step_.view(Dtype::kI64, {1}); }
  void bring(Epoch epoch) const {
    const auto number = static_cast<std::int64_t>(epoch);
    copy(stream(), step_.view(Dtype::kI64, {1}), const_host_view(std::span(&number, 1)));
  }
  void stage(Epoch epoch, const BatchedModelOutput& output) const {
    bring(epoch);
    ring->begin(epoch, 1);
    ring->stage(stream(), output, step());
  }
  [[nodiscard]] HostRows rows(Epoch epoch) const {
    stream().synchronize();
    return ring->rows(epoch);
  }
  [[nodiscard]] std::vector<std::int32_t> tokens(Epoch epoch, SignalId signal = kRingToken) const {
    const auto span = rows(epoch).find(signal).span<const std::int32_t>();
    return {span.begin(), span.end()};
  }

  std::unique_ptr<ResultRing> ring;
  DeviceBuffer step_;
};

TEST_F(ResultRingTest, T_HR_3_rows_stay_while_the_next_three_steps_stage_theirs) {
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

TEST_F(ResultRingTest, C_8_a_step_with_larger_rows_moves_nobody_elses) {
  const Tensor small = device_ids({1});
  const Tensor large = device_ids(std::vector<std::int32_t>(5000, 7));
  stage(1, output_of(small, {0}));
  const HostRows before = ring->rows(1);
  stage(2, output_of(large, {0}));
  stage(3, output_of(large.reshape({1, 5000}), {0}));
  EXPECT_THAT(tokens(1), ElementsAre(1));
  EXPECT_EQ(before.find(kRingToken).raw(), ring->rows(1).find(kRingToken).raw());
  EXPECT_THAT(tokens(2), ::testing::Each(7)) << "more than an entry holds";
  EXPECT_THAT(tokens(3), ::testing::Each(7)) << "and wider than a warp moves";
}

TEST_F(ResultRingTest, T_HR_2_padded_rows_come_along_and_belong_to_nobody) {
  const Tensor padded = device_ids({4, 5, -1, -1});
  stage(1, output_of(padded, {2, 3}));
  EXPECT_THAT(tokens(1), ElementsAre(4, 5, -1, -1));
  EXPECT_EQ(ring->rows(1).handles.size(), 2u);
  EXPECT_EQ(ring->rows(1).row_of({-1, 0}), -1);
}

TEST_F(ResultRingTest, B_58_two_buffers_of_one_size_have_memory_of_their_own) {
  const Tensor first = device_ids({1, 2});
  const Tensor second = device_ids({3, 4});
  BatchedModelOutput output = output_of(first, {0, 1});
  output.add_rows(kRingStop, second.reshape({1, 2}).device_view());
  stage(1, output);
  EXPECT_THAT(tokens(1), ElementsAre(1, 2));
  EXPECT_THAT(tokens(1, kRingStop), ElementsAre(3, 4));
}

TEST_F(ResultRingTest, B_58_more_buffers_than_a_launch_takes_all_arrive) {
  std::vector<Tensor> kept;
  BatchedModelOutput output;
  for (std::int32_t signal = 0; signal < 12; ++signal) {
    kept.push_back(device_ids({signal, signal + 100}));
    output.add_rows(SignalId{static_cast<std::uint16_t>(signal)}, kept.back().device_view());
  }
  output.set_row_handles(requests_of({0, 1}));
  stage(1, output);
  for (std::int32_t signal = 0; signal < 12; ++signal) {
    EXPECT_THAT(tokens(1, SignalId{static_cast<std::uint16_t>(signal)}),
                ElementsAre(signal, signal + 100));
  }
}

TEST_F(ResultRingTest, T_BO_10_rows_that_are_stop_buffers_too_travel_once) {
  const Tensor values = device_ids({1, 2});
  const Tensor flags = device_ids({0, 1});
  BatchedModelOutput output = output_of(values, {0, 1});
  output.set_stop_buffers({{kRingToken, values}, {SignalId{5}, values}, {kRingStop, flags}});
  stage(1, output);
  const HostRows staged = ring->rows(1);
  EXPECT_EQ(staged.buffers.size(), 3u);
  EXPECT_EQ(staged.find(SignalId{5}).raw(), staged.find(kRingToken).raw());
  EXPECT_THAT(tokens(1, SignalId{5}), ElementsAre(1, 2));
  EXPECT_THAT(tokens(1, kRingStop), ElementsAre(0, 1));
}

TEST_F(ResultRingTest, T_BO_9_rows_are_stamped_with_the_order_of_their_forward) {
  const Tensor values = device_ids({7, 8, 9});
  std::vector<RequestHandle> batch = requests_of({5, 1, 3});
  BatchedModelOutput output;
  output.add_rows(kRingToken, values.device_view());
  output.set_row_handles(batch);
  stage(1, output);
  batch.erase(batch.begin());  // the worker's own list goes on without request 5
  EXPECT_THAT(ring->rows(1).handles, ::testing::ElementsAreArray(requests_of({5, 1, 3})));
  EXPECT_EQ(ring->rows(1).row_of({3, 1}), 2);
}

TEST_F(ResultRingTest, T_HR_1_rows_of_several_forwards_follow_each_other) {
  const Tensor first = device_ids({1});
  const Tensor second = device_ids({2});
  bring(1);
  ring->begin(1, 3);
  ring->stage(stream(), output_of(first, {4}), step());
  BatchedModelOutput nothing;
  nothing.set_row_handles(requests_of({5}));
  ring->stage(stream(), nothing, step());
  ring->stage(stream(), output_of(second, {6}), step());
  const std::vector<std::int32_t> all = tokens(1);
  EXPECT_EQ(all[0], 1);
  EXPECT_EQ(all[2], 2);
  EXPECT_EQ(ring->rows(1).row_of({6, 1}), 2);
}

TEST_F(ResultRingTest, T_HR_1_forwards_whose_rows_differ_are_refused_by_signal) {
  const Tensor narrow = device_ids({1});
  const Tensor wide = device_ids({2, 3});
  bring(1);
  ring->begin(1, 2);
  ring->stage(stream(), output_of(narrow, {4}), step());
  BatchedModelOutput other;
  other.add_rows(kRingToken, wide.reshape({1, 2}).device_view());
  other.set_row_handles(requests_of({5}));
  EXPECT_THROW(ring->stage(stream(), other, step()), CheckError);
  BatchedModelOutput more = output_of(wide, {6});
  EXPECT_THROW(ring->stage(stream(), more, step()), CheckError) << "one lane gives one row";
}

TEST_F(ResultRingTest, T_HR_3_a_step_without_rows_has_none) {
  stage(1, BatchedModelOutput());
  EXPECT_THAT(ring->rows(1).handles, IsEmpty());
  EXPECT_FALSE(ring->rows(1).find(kRingToken).defined());
}

/// A device that samples: each step brings rows, tokens and its number, and ends with the stop copy.
class StopRecordsTest : public ResultRingTest {
 protected:
  void SetUp() override {
    ResultRingTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    lane_rows_ = DeviceBuffer(*device, Dtype::kI32, {kRingLanes});
    tokens_ = DeviceBuffer(*device, Dtype::kI32, {kRingLanes});
    eos_ = DeviceBuffer(*device, Dtype::kI32, {1});
    table_ = DeviceBuffer(*device, Dtype::kI32, {kRingRows, kernels::kStopRowWords});
    write_to<std::int32_t>(eos_, {kRingEos});
    for (std::int32_t row = 0; row < kRingRows; ++row) {
      start_row({row, 1});
    }
  }
  template <class T>
  void write_to(const DeviceBuffer& target, const std::vector<T>& values) const {
    copy(stream(), target.view(dtype_of<T>, {static_cast<std::int64_t>(values.size())}),
         const_host_view(std::span<const T>(values)));
  }
  void start_row(RequestHandle handle) const {
    StopRow row{.generation = handle.generation,
                .options = 0,
                .min_tokens = 0,
                .max_tokens = 100,
                .max_length = 1'000,
                .num_prompt_tokens = 5,
                .num_generated = 0,
                .stop_ids = {}};
    kernels::set_stop_ids(row, {});
    std::vector<std::int32_t> words(kernels::kStopRowWords);
    std::memcpy(words.data(), &row, sizeof row);
    const DeviceBuffer value(*device, Dtype::kI32, {1, kernels::kStopRowWords});
    const DeviceBuffer index(*device, Dtype::kI32, {1});
    write_to(value, words);
    write_to<std::int32_t>(index, {handle.row});
    kernels::set_stop_rows(stream(), table(), index.view(Dtype::kI32, {1}),
                           value.view(Dtype::kI32, {1, kernels::kStopRowWords}));
    stream().synchronize();
  }
  [[nodiscard]] DeviceView table() const {
    return table_.view(Dtype::kI32, {kRingRows, kernels::kStopRowWords});
  }
  void bring_lanes(Epoch epoch, const std::vector<std::int32_t>& requests,
                   const std::vector<std::int32_t>& sampled) const {
    bring(epoch);
    write_to(lane_rows_, requests);
    write_to(tokens_, sampled);
  }
  [[nodiscard]] BatchedModelOutput sampled_output(const std::vector<RequestHandle>& handles,
                                                  std::int64_t num_lanes) const {
    BatchedModelOutput output;
    output.set_row_handles(handles);
    const ConstDeviceView sampled = tokens_.view(Dtype::kI32, {num_lanes});
    output.add_rows(kRingToken, sampled);
    output.set_stop_lanes({.records = kRingRecords,
                           .test = {.stop_rows = table(),
                                    .eos_ids = eos_.view(Dtype::kI32, {1}),
                                    .rows = lane_rows_.view(Dtype::kI32, {num_lanes}),
                                    .tokens = sampled}});
    return output;
  }
  void launch(Epoch epoch, const std::vector<std::int32_t>& requests,
              const std::vector<std::int32_t>& sampled) const {
    bring_lanes(epoch, requests, sampled);
    ring->begin(epoch, 1);
    ring->stage(stream(),
                sampled_output(requests_of(requests), static_cast<std::int64_t>(requests.size())),
                step());
  }
  [[nodiscard]] StepRecord record(Epoch epoch, std::int32_t request) const {
    const HostRows all = rows(epoch);
    const std::int64_t row = all.row_of({request, 1});
    EXPECT_GE(row, 0);
    StepRecord record{};
    std::memcpy(&record, all.find(kRingRecords).select(0, row).raw(), sizeof record);
    return record;
  }

  DeviceBuffer lane_rows_, tokens_, eos_, table_;
};

TEST_F(StopRecordsTest, T_HR_1_a_request_finds_its_record_whatever_became_of_the_batch) {
  launch(1, {2, 0, 1}, {30, 10, kRingEos});
  EXPECT_EQ(record(1, 1).token, kRingEos);
  EXPECT_EQ(record(1, 1).flags, kernels::kStopEos);
  EXPECT_EQ(record(1, 1).length, 6);
  EXPECT_EQ(record(1, 0).token, 10);
  EXPECT_EQ(record(1, 2).flags, 0u);
  EXPECT_THAT(tokens(1), ElementsAre(30, 10, kRingEos));
  EXPECT_EQ(rows(1).row_of({1, 4}), -1) << "a later owner of the row did not run";
}

TEST_F(StopRecordsTest, B_03_a_request_stops_on_its_own_token_when_the_batch_was_rewritten) {
  launch(1, {0, 1, 2}, {kRingEos, 20, 30});
  launch(2, {0, 1, 2}, {11, 21, kRingEos});  // one step ahead: request 0 is computed for nothing
  launch(3, {2, 1}, {32, 22});
  std::vector<std::uint32_t> flags;
  for (Epoch epoch = 1; epoch <= 3; ++epoch) {
    for (const std::int32_t request : {2, 1}) {
      flags.push_back(record(epoch, request).flags & kernels::kStopped);
    }
  }
  EXPECT_THAT(flags, ElementsAre(0u, 0u, kernels::kStopEos, 0u, 0u, 0u));
  EXPECT_EQ(record(1, 0).flags, kernels::kStopEos);
}

TEST_F(StopRecordsTest, T_HR_3_a_steps_records_stay_while_three_later_ones_come) {
  for (Epoch epoch = 5; epoch < 9; ++epoch) {
    const auto token = static_cast<std::int32_t>(epoch);
    launch(epoch, {0, 1}, {100 + token, 200 + token});
  }
  for (Epoch epoch = 5; epoch < 9; ++epoch) {
    EXPECT_EQ(record(epoch, 0).token, 100 + static_cast<std::int32_t>(epoch));
    EXPECT_EQ(record(epoch, 1).num_generated, static_cast<std::int32_t>(epoch) - 4);
    EXPECT_EQ(record(epoch, 1).step, epoch);
  }
}

TEST_F(StopRecordsTest, T_HR_1_each_turn_of_a_step_has_rows_and_records_of_its_own) {
  constexpr std::int32_t kTurns = 3;
  ring = std::make_unique<ResultRing>(*device, kRingEntryBytes, kTurns);
  for (const Epoch epoch : {6, 7}) {
    ring->begin(epoch, 1);
    BatchedModelOutput output = sampled_output(requests_of({4, 2}), 2);
    {
      GraphCapture capture(stream());
      ring->capture(stream(), output, step());
      GraphExec exec(capture.end());
      for (std::int32_t turn = 0; turn < (epoch == 6 ? 2 : 3); ++turn) {
        bring_lanes(epoch * kTurns + static_cast<Epoch>(turn), {4, 2}, {10 + turn, 20 + turn});
        exec.launch(stream());
      }
    }
    ring->stage(stream(), output, step());  // the rows have their places already
  }
  stream().synchronize();
  EXPECT_EQ(ring->num_turns(6, kTurns), 2);
  EXPECT_EQ(ring->num_turns(7, kTurns), 3);
  EXPECT_EQ(ring->num_turns(7, 2), 2);
  for (std::int32_t turn = 0; turn < 3; ++turn) {
    const HostRows rows = ring->rows(7, turn);
    const auto tokens = rows.find(kRingToken).span<const std::int32_t>();
    EXPECT_THAT(tokens, ElementsAre(10 + turn, 20 + turn));
    EXPECT_EQ(rows.row_of({2, 1}), 1);
    StepRecord record{};
    std::memcpy(&record, rows.find(kRingRecords).select(0, 1).raw(), sizeof record);
    EXPECT_EQ(record.num_generated, 2 + turn + 1) << "two turns of the step before";
  }
  EXPECT_THROW(std::ignore = ring->rows(6, 2), CheckError) << "a turn that there was not";
}

TEST_F(StopRecordsTest, C_7_a_record_made_for_an_earlier_owner_of_the_row_is_refused) {
  // The row has a new owner of whom the device has not been told.
  bring_lanes(1, {0}, {10});
  ring->begin(1, 1);
  ring->stage(stream(), sampled_output({{0, 2}}, 1), step());
  stream().synchronize();
  EXPECT_THROW(std::ignore = ring->rows(1), CheckError);
  start_row({0, 2});
  bring_lanes(2, {0}, {11});
  ring->begin(2, 1);
  ring->stage(stream(), sampled_output({{0, 2}}, 1), step());
  EXPECT_EQ(rows(2).handles[0].generation, 2u);
}

TEST_F(StopRecordsTest, C_8_a_record_of_another_step_is_refused) {
  launch(1, {0}, {10});
  bring_lanes(1, {0}, {11});  // the host has forgotten to say that it is step 5
  ring->begin(5, 1);
  ring->stage(stream(), sampled_output(requests_of({0}), 1), step());
  stream().synchronize();
  EXPECT_THROW(std::ignore = ring->rows(5), CheckError);
}

TEST_F(StopRecordsTest, B_58_records_have_a_place_however_much_else_a_step_brings) {
  const Tensor scores = device_ids(std::vector<std::int32_t>(kRingEntryBytes / 4, 7));
  bring_lanes(1, {0, 1}, {10, kRingEos});
  BatchedModelOutput output;
  output.add_rows(kRingStop, scores.device_view());
  const BatchedModelOutput sampled = sampled_output(requests_of({0, 1}), 2);
  output.set_row_handles(sampled.row_handles());
  output.add_rows(kRingToken, sampled.rows(kRingToken));
  output.set_stop_lanes(*sampled.stop_lanes());
  ring->begin(1, 1);
  ring->stage(stream(), output, step());
  EXPECT_EQ(record(1, 1).flags, kernels::kStopEos);
  EXPECT_THAT(tokens(1), ElementsAre(10, kRingEos));
  EXPECT_THAT(tokens(1, kRingStop), ::testing::Each(7));
}

TEST_F(StopRecordsTest, T_HR_1_records_of_several_forwards_follow_each_other) {
  ring->begin(1, 3);
  for (const std::int32_t request : {4, 6, 5}) {
    bring_lanes(1, {request}, {request == 6 ? kRingEos : request});
    ring->stage(stream(), sampled_output(requests_of({request}), 1), step());
    stream().synchronize();  // the next one's lanes come into the same buffers
  }
  EXPECT_EQ(record(1, 4).token, 4);
  EXPECT_EQ(record(1, 6).flags, kernels::kStopEos);
  EXPECT_EQ(record(1, 5).row, 5);
  EXPECT_THAT(tokens(1), ElementsAre(4, kRingEos, 5));
}

TEST_F(StopRecordsTest, T_HR_2_one_captured_stop_copy_serves_every_step_and_every_padding) {
  BatchedModelOutput captured = sampled_output(requests_of({}), 4);
  GraphCapture capture(stream());
  ring->capture(stream(), captured, step());
  GraphExec exec(capture.end());
  for (Epoch epoch = 1; epoch <= 10; ++epoch) {
    const auto token = static_cast<std::int32_t>(1'000 + epoch);
    bring_lanes(epoch, {1, 2, -1, -2}, {token, token + 1, -1, -1});
    exec.launch(stream());
    BatchedModelOutput replayed;
    replayed.set_row_handles(requests_of({1, 2}));
    replayed.add_rows(kRingToken, captured.rows(kRingToken).slice(0, 0, 2),
                      captured.row_outputs()[0].place);
    StopLanes lanes = *captured.stop_lanes();
    lanes.test.rows = lanes.test.rows.slice(0, 0, 2);
    replayed.set_stop_lanes(lanes);
    ring->begin(epoch, 1);
    ring->stage(stream(), replayed, step());
    EXPECT_THAT(tokens(epoch), ElementsAre(token, token + 1));
    EXPECT_EQ(record(epoch, 2).token, token + 1);
    EXPECT_EQ(record(epoch, 2).num_generated, static_cast<std::int32_t>(epoch));
  }
}

}  // namespace
}  // namespace rigel
