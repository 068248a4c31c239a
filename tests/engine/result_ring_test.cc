#include "engine/result_ring.h"

#include "kernels/stop.h"
#include "tensor/copy.h"
#include "tensor/graph.h"
#include "tensor/stream.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

namespace rigel {
namespace {

using kernels::StepRecord;
using kernels::StopRow;

constexpr RequestHandle kA{0, 7};
constexpr RequestHandle kB{1, 3};
constexpr RequestHandle kC{2, 9};
constexpr RequestHandle kPadding{-1, 0};
constexpr std::int64_t kMaxLanes = 6;
constexpr std::int64_t kNumRows = 3;

/// A device that samples: each step brings rows, tokens and its number, and ends with the stop copy.
class ResultRingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Device::available()) {
      GTEST_SKIP() << "no device";
    }
    device_ = Device::open({});
    stream_.emplace(*device_);
    rows_ = DeviceBuffer(*device_, Dtype::kI32, {kMaxLanes});
    tokens_ = DeviceBuffer(*device_, Dtype::kI32, {kMaxLanes});
    step_ = DeviceBuffer(*device_, Dtype::kI64, {1});
    eos_ = DeviceBuffer(*device_, Dtype::kI32, {1});
    stop_rows_ = DeviceBuffer(*device_, Dtype::kI32, {kNumRows, kernels::kStopRowWords});
    ring_ = std::make_unique<ResultRing>(*device_, kMaxLanes);
    for (const RequestHandle handle : {kA, kB, kC}) {
      start_row(handle);
    }
    write<std::int32_t>(eos_, {2});
  }

  void start_row(RequestHandle handle) {
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
    const DeviceBuffer value(*device_, Dtype::kI32, {1, kernels::kStopRowWords});
    const DeviceBuffer index(*device_, Dtype::kI32, {1});
    write(value, words);
    write<std::int32_t>(index, {handle.row});
    kernels::set_stop_rows(*stream_, table(), index.view(Dtype::kI32, {1}),
                           value.view(Dtype::kI32, {1, kernels::kStopRowWords}));
    stream_->synchronize();
  }

  template <class T>
  void write(const DeviceBuffer& target, const std::vector<T>& values) {
    copy(*stream_, target.view(dtype_of<T>, {static_cast<std::int64_t>(values.size())}),
         const_host_view(std::span<const T>(values)));
  }
  [[nodiscard]] DeviceView table() const {
    return stop_rows_.view(Dtype::kI32, {kNumRows, kernels::kStopRowWords});
  }

  void enqueue_stop_copy(std::int64_t num_lanes) {
    kernels::stop_copy(*stream_, ring_->device_records(), table(), eos_.view(Dtype::kI32, {1}),
                       {rows_.view(Dtype::kI32, {num_lanes}),
                        tokens_.view(Dtype::kI32, {num_lanes}), step_.view(Dtype::kI64, {1})});
  }
  void bring(Epoch step, const std::vector<RequestHandle>& lanes,
             const std::vector<std::int32_t>& tokens) {
    std::vector<std::int32_t> rows;
    for (const RequestHandle handle : lanes) {
      rows.push_back(handle.row);
    }
    write(rows_, rows);
    write(tokens_, tokens);
    write<std::int64_t>(step_, {static_cast<std::int64_t>(step)});
  }
  void launch(Epoch step, const std::vector<RequestHandle>& lanes,
              const std::vector<std::int32_t>& tokens) {
    ring_->open(step, lanes);
    bring(step, lanes, tokens);
    enqueue_stop_copy(static_cast<std::int64_t>(lanes.size()));
  }
  /// Nothing but the tags tells that the records have come.
  ResultRows await(Epoch step) {
    while (!ring_->poll(step)) {
      std::this_thread::yield();
    }
    return ring_->rows(step);
  }

  std::unique_ptr<Device> device_;
  std::optional<Stream> stream_;
  DeviceBuffer rows_, tokens_, step_, eos_, stop_rows_;
  std::unique_ptr<ResultRing> ring_;
};

TEST_F(ResultRingTest, T_HR_1_a_request_finds_its_record_whatever_became_of_the_batch) {
  launch(1, {kC, kA, kB}, {30, 10, 2});
  const ResultRows rows = await(1);
  ASSERT_EQ(rows.records.size(), 3u);
  // The batch has shrunk meanwhile: B is walked as its second member.
  const StepRecord* const of_b = rows.find(kB, 1);
  ASSERT_NE(of_b, nullptr);
  EXPECT_EQ(of_b->token, 2);
  EXPECT_EQ(of_b->flags, kernels::kStopEos);
  EXPECT_EQ(of_b->length, 6);
  EXPECT_EQ(rows.find(kA)->token, 10);
  EXPECT_EQ(rows.find(kC, 0)->token, 30);
  EXPECT_EQ(rows.find({1, 4}), nullptr) << "a later owner of B's row did not run";
}

TEST_F(ResultRingTest, B_03_a_request_stops_on_its_own_token_when_the_batch_was_rewritten) {
  launch(1, {kA, kB, kC}, {2, 20, 30});  // A meets an end token
  launch(2, {kA, kB, kC}, {11, 21, 2});  // one step ahead: A is computed for nothing
  launch(3, {kC, kB}, {32, 22});
  const std::vector<RequestHandle> batch_now{kC, kB};
  std::vector<std::uint32_t> flags;
  for (Epoch step = 1; step <= 3; ++step) {
    const ResultRows rows = await(step);
    for (std::size_t lane = 0; lane < batch_now.size(); ++lane) {
      flags.push_back(rows.find(batch_now[lane], lane)->flags & kernels::kStopped);
    }
  }
  EXPECT_EQ(flags, (std::vector<std::uint32_t>{0, 0, kernels::kStopEos, 0, 0, 0}));
  EXPECT_EQ(ring_->rows(1).find(kA)->flags, kernels::kStopEos);
}

TEST_F(ResultRingTest, T_HR_2_padding_lanes_are_not_waited_for) {
  launch(1, {kA, kPadding, kB, kPadding}, {10, -1, 20, -1});
  const ResultRows rows = await(1);
  EXPECT_EQ(rows.find(kA)->token, 10);
  EXPECT_EQ(rows.find(kB)->token, 20);
  launch(2, {kPadding, kPadding}, {-1, -1});
  EXPECT_TRUE(ring_->poll(2));
}

TEST_F(ResultRingTest, T_HR_3_a_steps_records_stay_while_three_later_ones_come) {
  for (Epoch step = 5; step < 9; ++step) {
    const auto token = static_cast<std::int32_t>(step);
    launch(step, {kA, kB}, {100 + token, 200 + token});
  }
  std::ignore = await(8);
  for (Epoch step = 5; step < 9; ++step) {
    ASSERT_TRUE(ring_->poll(step));
    const ResultRows rows = ring_->rows(step);
    EXPECT_EQ(rows.find(kA)->token, 100 + static_cast<std::int32_t>(step));
    EXPECT_EQ(rows.find(kB)->token, 200 + static_cast<std::int32_t>(step));
    EXPECT_EQ(rows.find(kA)->num_generated, static_cast<std::int32_t>(step) - 4);
  }
}

TEST_F(ResultRingTest, C_8_a_place_is_not_used_again_before_its_reader_is_done) {
  for (Epoch step = 1; step <= 4; ++step) {
    launch(step, {kA}, {1});
  }
  EXPECT_THROW(ring_->open(5, {}), CheckError);
  std::ignore = await(1);
  EXPECT_THROW(ring_->open(5, {}), CheckError);
  ring_->close(1);
  EXPECT_THROW(std::ignore = ring_->rows(1), CheckError);
  launch(5, {kB}, {50});
  EXPECT_EQ(await(5).find(kB)->token, 50);
  EXPECT_THROW(ring_->close(1), CheckError);
}

TEST_F(ResultRingTest, C_7_a_record_made_for_an_earlier_owner_of_the_row_is_refused) {
  // The row has a new owner of whom the device has not been told.
  launch(1, {{kA.row, kA.generation + 1}}, {10});
  stream_->synchronize();
  EXPECT_THROW(std::ignore = ring_->poll(1), CheckError);
  ring_->close(1);
  start_row({kA.row, kA.generation + 1});
  launch(2, {{kA.row, kA.generation + 1}}, {11});
  EXPECT_EQ(await(2).find({kA.row, kA.generation + 1})->num_generated, 1);
}

TEST_F(ResultRingTest, a_step_has_not_arrived_before_it_is_launched) {
  const std::vector<RequestHandle> lanes{kA, kB};
  EXPECT_THROW(std::ignore = ring_->poll(1), CheckError);
  ring_->open(1, lanes);
  EXPECT_FALSE(ring_->poll(1));
  EXPECT_THROW(std::ignore = ring_->rows(1), CheckError);
  ring_->close(1);
  // The place holds records of an older step then, and still counts as empty.
  launch(2, lanes, {1, 2});
  std::ignore = await(2);
  ring_->close(2);
  ring_->open(6, lanes);
  EXPECT_FALSE(ring_->poll(6));
  EXPECT_THROW(ring_->open(7, std::vector<RequestHandle>(kMaxLanes + 1)), CheckError);
}

TEST_F(ResultRingTest, one_captured_stop_copy_serves_every_step) {
  GraphCapture capture(*stream_);
  enqueue_stop_copy(4);
  GraphExec exec(capture.end());
  for (Epoch step = 1; step <= 10; ++step) {
    const auto token = static_cast<std::int32_t>(1'000 + step);
    const std::vector<RequestHandle> lanes{kB, kC, kPadding, kPadding};
    ring_->open(step, lanes);
    bring(step, lanes, {token, token + 1, -1, -1});
    exec.launch(*stream_);
    const ResultRows rows = await(step);
    EXPECT_EQ(rows.find(kB)->token, token);
    EXPECT_EQ(rows.find(kC)->token, token + 1);
    EXPECT_EQ(rows.find(kC)->num_generated, static_cast<std::int32_t>(step));
    ring_->close(step);
  }
}

}  // namespace
}  // namespace rigel
