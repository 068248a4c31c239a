// A node's steps captured and replayed by its engine.

#include "engine/capture.h"

#include "tests/engine/recording_submodule.h"

#include <gmock/gmock.h>

namespace rigel {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Names = testing::RecordingNames;

/// Steps of one and of three lanes are captured. Each lane's row output is what the host staged for it: 100 + row.
class CaptureTest : public testing::RecordingEngineTest {
 protected:
  void SetUp() override {
    RecordingEngineTest::SetUp();
    if (!IsSkipped()) {
      begin({1, 3});
    }
  }
  void begin(const std::vector<std::int32_t>& batch_sizes, bool repeats = false) {
    const auto prepare = [&](testing::RecordingSubmodule& model) {
      auto lane = std::make_shared<NodeInputs>();
      lane->input_seq_len = 1;
      BatchedGraphConfig config;
      config.capture_walk = Names::kWalk;
      config.replay_walks = {Names::kAlias};
      config.batch_sizes = batch_sizes;
      config.row = lane;
      config.repeats = repeats;
      model.graph_configs = {config};
      model.gives_outputs = false;
      model.gives_rows = true;
    };
    make_engine(prepare, {.staging_bytes = 1024, .max_turns = repeats ? 4 : 1});
    row.input_seq_len = 1;
    captures = &engine->capture_steps({.staging_bytes = 1024});
  }
  /// The rows of a step, as "row: value".
  [[nodiscard]] testing::Calls values_of(const HostRows& rows) const {
    testing::Calls values;
    const auto tokens = rows.find(Names::kRowToken).span<const std::int32_t>();
    EXPECT_EQ(tokens.size(), rows.handles.size()) << "padding never travels to the host";
    for (std::size_t index = 0; index < rows.handles.size(); ++index) {
      values.push_back(std::to_string(rows.handles[index].row) + ": " +
                       std::to_string(tokens[index]));
    }
    return values;
  }
  [[nodiscard]] std::vector<GraphMissReason> misses() const {
    std::vector<GraphMissReason> reasons;
    for (const GraphMiss& miss : engine->graph_misses().all()) {
      reasons.push_back(miss.reason);
    }
    return reasons;
  }

  StepCaptures* captures = nullptr;
};

TEST_F(CaptureTest, T_CG_3_a_replay_reads_the_steps_own_columns_and_gives_each_request_its_row) {
  captures->capture_all();
  calls.clear();
  EXPECT_THAT(values_of(run({2})), ElementsAre("2: 102"));
  EXPECT_THAT(values_of(run({3, 1})), ElementsAre("3: 103", "1: 101"));
  EXPECT_THAT(values_of(run({1, 0, 2})), ElementsAre("1: 101", "0: 100", "2: 102"));
  EXPECT_THAT(calls, Each(::testing::Not(HasSubstr("forward")))) << "nothing is enqueued anew";
  EXPECT_THAT(misses(), IsEmpty());
}

TEST_F(CaptureTest, T_CG_2_the_largest_step_is_captured_first_over_padding_alone) {
  captures->capture_all();
  EXPECT_THAT(
      calls,
      ElementsAre("declare -1,-2,-3 leased", "admit -1,-2,-3", "plan -1,-2,-3",
                  "preprocess -1,-2,-3", "forward -1,-2,-3", "declare -1,-2,-3 leased",
                  "admit -1,-2,-3", "plan -1,-2,-3", "preprocess -1,-2,-3", "forward -1,-2,-3",
                  "declare -1 leased", "admit -1", "plan -1", "preprocess -1", "forward -1",
                  "declare -1 leased", "admit -1", "plan -1", "preprocess -1", "forward -1"))
      << "each slot; nothing is committed";
}

TEST_F(CaptureTest, T_CG_2_steps_that_repeat_and_cannot_end_are_not_captured) {
  begin({1, 3}, /*repeats=*/true);
  captures->capture_all();
  ASSERT_THAT(captures->runner().failures(), SizeIs(2));
  EXPECT_THAT(captures->runner().failures()[0].message, HasSubstr("gives stop lanes"));
  EXPECT_THAT(values_of(run({2})), ElementsAre("2: 102")) << "it runs eagerly";
  EXPECT_THAT(misses(), ElementsAre(GraphMissReason::kNotCaptured));
}

TEST_F(CaptureTest, T_ME_3_a_step_that_is_being_captured_is_a_captured_one) {
  EXPECT_FALSE(submodule->was_captured);
  ASSERT_TRUE(captures->capture_next());
  EXPECT_TRUE(submodule->was_captured) << "that of the largest step";
  batch_of({0}).walk = WalkId{9};
  ASSERT_TRUE(engine->launch(batch).ok());
  std::ignore = engine->complete();
  EXPECT_FALSE(submodule->was_captured) << "nothing is captured of this walk";
}

TEST_F(CaptureTest, T_CG_5_two_steps_in_flight_do_not_share_columns) {
  captures->capture_all();
  std::array<ExecutingBatch, 2> batches;
  for (std::size_t step = 0; step < 100; ++step) {
    ExecutingBatch& lanes = batches[step % 2];
    lanes.clear();
    lanes.add(infos[step % 4].handle, infos[step % 4], {}, row);
    ASSERT_TRUE(engine->launch(lanes).ok());
    if (step > 0) {
      const auto before = std::to_string((step - 1) % 4);
      EXPECT_THAT(values_of(engine->complete()), ElementsAre(before + ": 10" + before));
    }
  }
  std::ignore = engine->complete();
}

TEST_F(CaptureTest, T_CG_12_a_capture_leaves_the_columns_of_steps_in_flight_alone) {
  // Nothing runs before somebody waits: the replay reads its columns after the capture.
  engine.reset();
  allocator.reset();
  stream_owner.reset();
  DeviceOptions lazy;
  lazy.mode = DeviceMode::kLazy;
  device = Device::open(lazy);
  stream_owner = std::make_unique<Stream>(*device);
  allocator = std::make_unique<testing::CountingAllocator>(*device);
  begin({1, 3});
  ASSERT_TRUE(captures->capture_next());
  ASSERT_TRUE(engine->launch(batch_of({2, 0})).ok());
  ASSERT_TRUE(captures->capture_next());
  EXPECT_THAT(values_of(engine->complete()), ElementsAre("2: 102", "0: 100"));
}

TEST_F(CaptureTest, T_EN_9_a_refused_step_leaves_its_slot_to_the_next) {
  captures->capture_all();
  ASSERT_TRUE(engine->launch(batch_of({0})).ok());  // slot 0, in flight from here on
  resource->refuses_row = 1;
  ExecutingBatch refused;
  refused.add(infos[1].handle, infos[1], {}, row);
  EXPECT_FALSE(engine->launch(refused).ok());
  resource->refuses_row = -100;
  ASSERT_TRUE(engine->launch(refused).ok());
  EXPECT_THAT(values_of(engine->complete()), ElementsAre("0: 100"))
      << "the columns of the step in flight were written over";
  EXPECT_THAT(values_of(engine->complete()), ElementsAre("1: 101"));
}

TEST_F(CaptureTest, B_45_an_alias_replays_the_captured_walks_steps) {
  captures->capture_all();
  calls.clear();
  batch_of({2}).walk = Names::kAlias;
  ASSERT_TRUE(engine->launch(batch).ok());
  EXPECT_THAT(values_of(engine->complete()), ElementsAre("2: 102"));
  EXPECT_EQ(std::ranges::count(calls, "forward 2"), 0);
}

TEST_F(CaptureTest, T_CG_6_what_is_not_captured_yet_runs_eagerly_and_is_counted) {
  ASSERT_TRUE(captures->capture_next());
  calls.clear();
  EXPECT_THAT(values_of(run({1})), ElementsAre("1: 101")) << "padded to three";
  EXPECT_THAT(misses(), IsEmpty());
  begin({2, 3});
  EXPECT_THAT(values_of(run({1})), ElementsAre("1: 101"));
  EXPECT_THAT(misses(), ElementsAre(GraphMissReason::kNotCaptured));
  captures->capture_all();
  EXPECT_THAT(values_of(run({1})), ElementsAre("1: 101"));
  EXPECT_THAT(misses(), SizeIs(1));
}

TEST_F(CaptureTest, B_14_a_forward_that_cannot_be_captured_says_why_and_runs_eagerly) {
  submodule->packs = true;
  captures->capture_all();
  EXPECT_EQ(captures->runner().failures().size(), 2U);
  EXPECT_THAT(captures->runner().failures()[0].message, HasSubstr("on the host"));
  submodule->packs = false;
  EXPECT_THAT(values_of(run({1})), ElementsAre("1: 101"));
  EXPECT_THAT(misses(), ElementsAre(GraphMissReason::kNotCaptured));
}

TEST_F(CaptureTest, B_14_padding_that_a_resource_refuses_costs_the_bucket) {
  resource->refuses_row = -3;  // the last lane of the larger one
  captures->capture_all();
  EXPECT_THAT(captures->runner().failures(), SizeIs(1));
  EXPECT_THAT(captures->runner().failures()[0].message, HasSubstr("was refused by resource 0"));
  EXPECT_THAT(values_of(run({3})), ElementsAre("3: 103"));
}

TEST_F(CaptureTest, T_CG_8_fewer_slots_than_steps_in_flight_are_refused) {
  make_engine();
  EXPECT_THROW(std::ignore = engine->capture_steps({.num_slots = 1, .staging_bytes = 64}),
               CheckError);
  begin({1});
  EXPECT_THROW(std::ignore = engine->capture_steps({.staging_bytes = 64}), CheckError);
}

}  // namespace
}  // namespace rigel
