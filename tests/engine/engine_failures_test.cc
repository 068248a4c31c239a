// Whom a failure concerns, and that it is told once.

#include "tests/engine/recording_submodule.h"

#include <gmock/gmock.h>

namespace rigel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Names = testing::RecordingNames;

class EngineFailures : public testing::RecordingEngineTest {};

TEST_F(EngineFailures, T_EN_3_a_throw_before_anything_ran_leaves_no_step_behind) {
  resource->plan_throws = true;
  EXPECT_THROW(std::ignore = engine->launch(batch_of({0, 1})), std::runtime_error);
  EXPECT_EQ(engine->num_in_flight(), 0u);
  resource->plan_throws = false;
  run({0, 1});
}

TEST_F(EngineFailures, T_EN_3_a_throw_in_the_forward_leaves_a_step_that_completes_without_rows) {
  submodule->gives_rows = true;
  submodule->forward_fails_row = 1;
  EXPECT_THROW(std::ignore = engine->launch(batch_of({0, 1})), std::runtime_error);
  EXPECT_EQ(engine->num_in_flight(), 1u) << "the device may touch what was enqueued";
  EXPECT_THAT(engine->complete().handles, IsEmpty());
}

TEST_F(EngineFailures, T_EN_3_a_step_whose_device_fails_has_ended) {
  if (device->is_cuda()) {
    GTEST_SKIP() << "a barrier that some threads miss may hang a GPU";
  }
  submodule->diverges = true;
  ASSERT_TRUE(engine->launch(batch_of({0})).ok());
  EXPECT_THROW(std::ignore = engine->complete(), DeviceError);
  EXPECT_EQ(engine->num_in_flight(), 0u) << "nobody would ever wait for it again";
  submodule->diverges = false;
  run({0});
}

TEST_F(EngineFailures, C_9_what_a_hook_throws_reaches_the_worker_as_it_was) {
  submodule->forward_fails_row = 0;
  try {
    std::ignore = engine->launch(batch_of({0}));
    ADD_FAILURE() << "the forward threw";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "no kernel");
  }
}

TEST_F(EngineFailures, B_31_a_step_that_failed_fails_once) {
  submodule->forward_fails_row = 1;
  EXPECT_THROW(std::ignore = engine->launch(batch_of({0, 1})), std::runtime_error);
  std::ignore = engine->complete();
  submodule->forward_fails_row = -1;
  run({0, 1});
  EXPECT_THAT(output_of(1, Names::kText), ElementsAre(1));
  EXPECT_THAT(failures(), IsEmpty()) << "the throw was the report";
}

TEST_F(EngineFailures, B_31_a_lane_that_throws_in_its_turn_fails_the_batch) {
  submodule->batches = false;
  submodule->gives_rows = true;
  submodule->forward_fails_row = 1;
  EXPECT_THROW(std::ignore = engine->launch(batch_of({0, 1, 2})), std::runtime_error);
  EXPECT_THAT(engine->complete().handles, IsEmpty()) << "the first lane's row fails with it";
  EXPECT_EQ(std::ranges::count(calls, "forward 2"), 0);
}

TEST_F(EngineFailures, B_09_a_throw_while_preparing_leaves_nothing_for_the_next_step) {
  submodule->prepare_fails_row = 1;
  engine->prepare_inputs(unprepared_batch_of({0, 1}));
  submodule->prepare_fails_row = -1;
  engine->prepare_inputs(unprepared_batch_of({2}));
  ASSERT_TRUE(engine->launch(batch).ok());
  std::ignore = engine->complete();
  EXPECT_THAT(calls,
              ElementsAre("prepare 0", "prepare 1", "prepare 2", "declare 2", "admit 2", "plan 2",
                          "preprocess 2", "forward 2", "commit 2", "filter 2", "postprocess 2"));
}

TEST_F(EngineFailures, B_28_a_failure_is_told_once) {
  submodule->gives_rows = true;
  submodule->postprocess_fails_row = 0;
  submodule->check_stop_fails_row = 0;
  submodule->checks_batched = false;
  ASSERT_TRUE(engine->launch(batch_of({0, 1})).ok());
  ASSERT_TRUE(engine->launch(batch_of({0, 1})).ok()) << "one step ahead";
  HostRows rows = engine->complete();
  std::ignore = engine->check_stop(views_of({0, 1}), rows);
  EXPECT_THAT(failures(), ElementsAre("0: no such voice"));
  rows = engine->complete();
  std::ignore = engine->check_stop(views_of({0, 1}), rows);
  submodule->prepare_fails_row = 0;
  engine->prepare_inputs(unprepared_batch_of({0, 1}));
  EXPECT_THAT(failures(), IsEmpty());
  EXPECT_THAT(batch.handles(), ElementsAre(infos[1].handle)) << "it takes no part until removed";
}

TEST_F(EngineFailures, B_29_a_removed_request_is_not_remembered_as_failed) {
  submodule->prepare_fails_row = 0;
  engine->prepare_inputs(unprepared_batch_of({0}));
  engine->remove_request(infos[0].handle);
  EXPECT_THAT(failures(), IsEmpty());
  submodule->prepare_fails_row = -1;
  ++infos[0].handle.generation;
  engine->add_request(infos[0]);
  engine->prepare_inputs(unprepared_batch_of({0}));
  EXPECT_EQ(batch.size(), 1u);
}

TEST_F(EngineFailures, T_NS_5_a_request_that_declines_has_not_failed) {
  submodule->declines_row = 0;
  engine->prepare_inputs(unprepared_batch_of({0}));
  EXPECT_TRUE(batch.empty());
  EXPECT_THAT(failures(), IsEmpty());
  submodule->declines_row = -1;
  engine->prepare_inputs(unprepared_batch_of({0}));
  EXPECT_EQ(batch.size(), 1u);
  EXPECT_THAT(batch.skipped(), IsEmpty());
}

class StopChecks : public testing::RecordingEngineTest {
 protected:
  [[nodiscard]] std::vector<int> stopped(std::span<const RequestView> views,
                                         const HostRows& rows) const {
    std::vector<int> stops;
    for (const LoopStop& stop : engine->check_stop(views, rows)) {
      stops.push_back(stop.handle.row);
    }
    return stops;
  }
};

TEST_F(StopChecks, T_EN_1_a_batched_check_that_throws_is_asked_again_by_request) {
  submodule->gives_rows = true;
  submodule->stop_token = 101;
  submodule->batched_check_throws = true;
  const HostRows rows = run({0, 1});
  EXPECT_THAT(stopped(views_of({0, 1}), rows), ElementsAre(1)) << "and counts no stop twice";
  EXPECT_THAT(failures(), IsEmpty());
}

TEST_F(StopChecks, T_EN_1_a_check_that_throws_fails_its_request_only) {
  submodule->gives_rows = true;
  submodule->stop_token = 101;
  submodule->checks_batched = false;
  submodule->check_stop_fails_row = 0;
  const HostRows rows = run({0, 1});
  EXPECT_THAT(stopped(views_of({0, 1}), rows), ElementsAre(1));
  EXPECT_THAT(failures(), ElementsAre("0: no such token"));
}

TEST_F(StopChecks, B_03_nobody_stops_on_anothers_row) {
  submodule->gives_rows = true;
  submodule->stop_token = 102;
  ASSERT_TRUE(engine->launch(batch_of({0, 1, 2})).ok());
  const HostRows rows = engine->complete();
  // Request 0 has left since the step was launched: the worker's own list is shorter than the rows.
  for (const bool batched : {true, false}) {
    submodule->checks_batched = batched;
    EXPECT_THAT(stopped(views_of({1, 2}), rows), ElementsAre(2));
  }
}

}  // namespace
}  // namespace rigel
