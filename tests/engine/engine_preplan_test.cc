// The step that is expected next, planned while the device has the one in front of it.

#include "tests/engine/recording_submodule.h"

#include <gmock/gmock.h>

namespace rigel {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using Names = testing::RecordingNames;

/// Steps of one and of three lanes are captured, and everything of the resource can be planned ahead.
class EnginePreplan : public testing::RecordingEngineTest {
 protected:
  void SetUp() override {
    RecordingEngineTest::SetUp();
    if (!IsSkipped()) {
      begin();
    }
  }
  void begin(bool preplans = true, bool captures_all = true) {
    make_engine(
        [](testing::RecordingSubmodule& model) {
          auto lane = std::make_shared<NodeInputs>();
          lane->input_seq_len = 1;
          BatchedGraphConfig config;
          config.capture_walk = Names::kWalk;
          config.batch_sizes = {1, 3};
          config.caps_eager_batch_size = false;
          config.row = lane;
          model.graph_configs = {config};
          model.gives_outputs = false;
          model.gives_rows = true;
        },
        {.staging_bytes = 1024, .preplan = preplans});
    row.input_seq_len = 1;
    resource->preplans = true;
    captures = &engine->capture_steps({.staging_bytes = 1024});
    if (captures_all) {
      captures->capture_all();
    }
    calls.clear();
  }
  /// Launches a step that stays in flight.
  void launch(std::initializer_list<std::size_t> requests) {
    ASSERT_TRUE(engine->launch(batch_of(requests)).ok());
    calls.clear();
  }
  bool preplan(std::initializer_list<std::size_t> requests) {
    ExecutingBatch expected;  // gone when the step is launched
    for (const std::size_t request : requests) {
      expected.add(infos[request].handle, infos[request], {}, row);
    }
    return engine->preplan(expected);
  }
  [[nodiscard]] std::vector<std::int32_t> complete() {
    const HostRows rows = engine->complete();
    const auto tokens = rows.find(Names::kRowToken).span<const std::int32_t>();
    return {tokens.begin(), tokens.end()};
  }
  [[nodiscard]] std::vector<std::uint64_t> counts() const {
    const PreplanCounts& counts = engine->preplan_counts();
    return {counts.planned, counts.promoted, counts.dropped, counts.refused};
  }

  StepCaptures* captures = nullptr;
};

TEST_F(EnginePreplan, T_EN_1_the_expected_step_is_promoted_and_not_planned_again) {
  launch({0});
  EXPECT_TRUE(preplan({2, 1}));
  EXPECT_THAT(calls, ElementsAre("declare 2,1,-1 leased", "begin", "admit 2,1,-1", "plan 2,1,-1"));
  calls.clear();
  EXPECT_THAT(complete(), ElementsAre(100));
  ASSERT_TRUE(engine->launch(batch_of({2, 1})).ok());
  EXPECT_THAT(calls, ElementsAre("can_batch", "declare 2,1,-1 leased", "promote 2",
                                 "preprocess 2,1,-1", "commit 2,1,-1"));
  EXPECT_THAT(complete(), ElementsAre(102, 101));
  EXPECT_THAT(counts(), ElementsAre(1u, 1u, 0u, 0u));
  EXPECT_THAT(engine->graph_misses().all(), IsEmpty());
}

TEST_F(EnginePreplan, T_EN_6_a_plan_is_dropped_with_a_request_of_its_own) {
  launch({0});
  ASSERT_TRUE(preplan({0, 1}));
  std::ignore = complete();
  calls.clear();
  engine->remove_request(infos[0].handle);
  EXPECT_EQ(calls.front(), "clear") << "before its state goes";
  ASSERT_TRUE(engine->launch(batch_of({1})).ok());
  EXPECT_THAT(calls, Not(Contains("promote 2")));
  EXPECT_THAT(complete(), ElementsAre(101));
  EXPECT_THAT(counts(), ElementsAre(1u, 0u, 1u, 0u));
}

TEST_F(EnginePreplan, T_EN_6_a_plan_is_dropped_where_a_request_starts_over_or_leaves_the_device) {
  ASSERT_TRUE(preplan({0, 1}));
  engine->restart_request(infos[1].handle);
  EXPECT_THAT(counts(), ElementsAre(1u, 0u, 1u, 0u));
  ASSERT_TRUE(preplan({0, 1}));
  std::ignore = engine->offload_request(infos[0].handle);
  EXPECT_THAT(counts(), ElementsAre(2u, 0u, 2u, 0u));
  ASSERT_TRUE(preplan({0, 1}));
  engine->restart_request(infos[2].handle);
  EXPECT_THAT(counts(), ElementsAre(3u, 0u, 2u, 0u)) << "somebody else";
}

TEST_F(EnginePreplan, B_08_a_plan_is_dropped_where_the_batch_has_lost_a_lane) {
  launch({0});
  ASSERT_TRUE(preplan({0, 1, 2}));
  std::ignore = complete();
  EXPECT_THAT((std::ignore = engine->launch(batch_of({0, 2})), complete()), ElementsAre(100, 102));
  ASSERT_TRUE(preplan({1, 2}));
  EXPECT_THAT((std::ignore = engine->launch(batch_of({2, 1})), complete()), ElementsAre(102, 101));
  EXPECT_THAT(counts(), ElementsAre(2u, 0u, 2u, 0u));
}

TEST_F(EnginePreplan, T_EN_7_another_step_first_drops_the_plan) {
  launch({0});
  ASSERT_TRUE(preplan({0, 1}));
  std::ignore = complete();
  batch_of({2, 3}).walk = WalkId{9};  // not captured
  ASSERT_TRUE(engine->launch(batch).ok());
  EXPECT_THAT(calls, Contains("clear"));
  EXPECT_THAT(complete(), ElementsAre(102, 103));
  calls.clear();
  batch_of({0, 1}).walk = Names::kWalk;
  ASSERT_TRUE(engine->launch(batch).ok());
  EXPECT_THAT(calls, Contains("plan 0,1,-1")) << "planned anew";
  EXPECT_THAT(complete(), ElementsAre(100, 101));
  EXPECT_THAT(counts(), ElementsAre(1u, 0u, 1u, 0u));
}

TEST_F(EnginePreplan, T_EN_7_a_newer_plan_replaces_the_older) {
  ASSERT_TRUE(preplan({0}));
  ASSERT_TRUE(preplan({1}));
  ASSERT_TRUE(engine->launch(batch_of({1})).ok());
  EXPECT_THAT(complete(), ElementsAre(101));
  EXPECT_THAT(counts(), ElementsAre(2u, 1u, 1u, 0u));
}

TEST_F(EnginePreplan, B_07_the_same_lanes_of_another_capture_are_planned_anew) {
  ASSERT_TRUE(preplan({0, 1}));
  submodule->key = CgKey::interned(1);
  submodule->declared_key = CgKey::interned(1);
  ASSERT_TRUE(engine->launch(batch_of({0, 1})).ok());
  EXPECT_THAT(complete(), ElementsAre(100, 101));
  EXPECT_THAT(counts(), ElementsAre(1u, 0u, 1u, 0u));
}

TEST_F(EnginePreplan, T_EN_12_what_throws_before_the_promotion_clears_the_plan) {
  launch({0});
  ASSERT_TRUE(preplan({0, 1}));
  std::ignore = complete();
  submodule->declare_throws = true;
  calls.clear();
  EXPECT_THROW(std::ignore = engine->launch(batch_of({0, 1})), std::runtime_error);
  EXPECT_THAT(calls, Contains("clear"));
  submodule->declare_throws = false;
  ASSERT_TRUE(engine->launch(batch_of({0, 1})).ok()) << "the slot was given back";
  EXPECT_THAT(complete(), ElementsAre(100, 101));
  EXPECT_THAT(counts(), ElementsAre(1u, 0u, 1u, 0u));
}

TEST_F(EnginePreplan, B_09_a_plan_that_fails_leaves_nothing_behind) {
  resource->plan_throws = true;
  EXPECT_FALSE(preplan({0, 1}));
  EXPECT_EQ(calls.back(), "clear");
  resource->plan_throws = false;
  resource->refuses_row = -1;  // the padding lane
  EXPECT_FALSE(preplan({0, 1}));
  EXPECT_EQ(calls.back(), "clear");
  resource->refuses_row = -100;
  submodule->declares = false;
  EXPECT_FALSE(preplan({0, 1})) << "nothing to plan";
  submodule->declares = true;
  ASSERT_TRUE(engine->launch(batch_of({0, 1})).ok());
  EXPECT_THAT(complete(), ElementsAre(100, 101));
  EXPECT_THAT(counts(), ElementsAre(0u, 0u, 0u, 1u));
}

TEST_F(EnginePreplan, T_NS_4_a_step_that_would_run_eagerly_is_not_planned_and_counted_once) {
  submodule->takes_graphs = false;
  EXPECT_FALSE(preplan({0}));
  submodule->takes_graphs = true;
  submodule->declared_key = CgKey::interned(2);
  EXPECT_FALSE(preplan({0}));
  EXPECT_THAT(engine->graph_misses().all(), IsEmpty()) << "its launch counts";
  submodule->declared_key = CgKey();
  launch({0});
  launch({1});
  EXPECT_FALSE(preplan({2})) << "two steps are in flight, and there is no third slot";
  EXPECT_THAT(counts(), ElementsAre(0u, 0u, 0u, 0u));
  std::ignore = complete();
  std::ignore = complete();
}

TEST_F(EnginePreplan, T_CG_12_a_capture_in_between_drops_the_plan) {
  begin(/*preplans=*/true, /*captures_all=*/false);
  ASSERT_TRUE(captures->capture_next());
  ASSERT_TRUE(preplan({2, 0}));
  ASSERT_TRUE(captures->capture_next()) << "it writes where the plan's columns are";
  ASSERT_TRUE(engine->launch(batch_of({2, 0})).ok());
  EXPECT_THAT(complete(), ElementsAre(102, 100));
  EXPECT_THAT(counts(), ElementsAre(1u, 0u, 1u, 0u));
}

TEST_F(EnginePreplan, T_CG_5_slots_take_turns_with_plans_made_ahead) {
  launch({0});
  for (std::size_t step = 1; step < 100; ++step) {
    const std::size_t request = step % 4;
    if (step % 7 != 0) {
      ASSERT_TRUE(preplan({step % 5 == 0 ? (request + 1) % 4 : request}));
    }
    EXPECT_THAT(complete(), ElementsAre(100 + static_cast<std::int32_t>((step - 1) % 4)));
    ASSERT_TRUE(engine->launch(batch_of({request})).ok());
  }
  EXPECT_THAT(complete(), ElementsAre(103));
  const std::vector<std::uint64_t> all = counts();
  EXPECT_EQ(all[0], all[1] + all[2]);
  EXPECT_GT(all[2], 10u);
}

TEST_F(EnginePreplan, plans_ahead_are_made_only_where_they_are_on) {
  begin(/*preplans=*/false);
  EXPECT_FALSE(preplan({0}));
  EXPECT_THAT(calls, IsEmpty());
}

}  // namespace
}  // namespace rigel
