// The order of a step, its ways to be refused, and lanes that cannot be batched.

#include "tests/engine/recording_submodule.h"

#include <gmock/gmock.h>

namespace rigel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Names = testing::RecordingNames;

class EngineSteps : public testing::RecordingEngineTest {};

TEST_F(EngineSteps, T_EN_1_hooks_and_resources_are_called_in_the_order_of_the_contract) {
  submodule->packs = true;
  engine->prepare_inputs(unprepared_batch_of({0, 1}));
  ASSERT_TRUE(engine->launch(batch).ok());
  const HostRows rows = engine->complete();
  submodule->checks_batched = false;
  std::ignore = engine->check_stop(views_of({0, 1}), rows);
  engine->remove_request(infos[0].handle);
  EXPECT_THAT(calls, ElementsAre("prepare 0", "prepare 1", "can_batch", "declare 0,1", "admit 0,1",
                                 "plan 0,1", "preprocess 0,1", "forward 0,1", "commit 0,1",
                                 "unpack 0,1", "filter 0", "postprocess 0", "filter 1",
                                 "postprocess 1", "check_stop 0", "check_stop 1", "cleanup"));
}

TEST_F(EngineSteps, T_EN_1_a_single_lane_is_not_asked_whether_it_batches) {
  submodule->batches = false;
  run({0});
  EXPECT_THAT(calls, ElementsAre("declare 0", "admit 0", "plan 0", "preprocess 0", "forward 0",
                                 "commit 0", "filter 0", "postprocess 0"));
}

TEST_F(EngineSteps, T_EN_1_lanes_that_cannot_be_batched_are_admitted_together_and_run_in_turn) {
  submodule->batches = false;
  run({0, 2});
  EXPECT_THAT(calls, ElementsAre("can_batch", "declare 0", "admit 0", "declare 2", "admit 2",
                                 "plan 0", "preprocess 0", "forward 0", "commit 0", "filter 0",
                                 "postprocess 0", "plan 2", "preprocess 2", "forward 2", "commit 2",
                                 "filter 2", "postprocess 2"));
  EXPECT_THAT(output_of(0, Names::kText), ElementsAre(1));
  EXPECT_THAT(output_of(2, Names::kText), ElementsAre(1));
  EXPECT_EQ(engine->last_completed(), 1u) << "they are one step";
}

TEST_F(EngineSteps, T_EN_1_several_lanes_take_the_batched_forward_and_one_takes_the_other) {
  run({0, 1});
  EXPECT_EQ(submodule->num_batched_forwards, 1);
  run({0});
  submodule->batches = false;
  run({0, 1});
  EXPECT_EQ(submodule->num_batched_forwards, 1);
}

TEST_F(EngineSteps, T_EN_1_a_step_without_declaration_uses_no_resources) {
  submodule->declares = false;
  run({0});
  EXPECT_THAT(calls,
              ElementsAre("declare 0", "preprocess 0", "forward 0", "filter 0", "postprocess 0"));
}

TEST_F(EngineSteps, T_EN_2_resources_commit_before_outputs_are_collected) {
  submodule->packs = true;
  run({0});
  const auto commit = std::ranges::find(calls, "commit 0");
  EXPECT_LT(commit, std::ranges::find(calls, "unpack 0"));
  EXPECT_NE(commit, calls.end());
}

TEST_F(EngineSteps, T_EN_4_a_refused_step_is_neither_planned_nor_launched) {
  resource->refuses_row = 1;
  const AdmitOutcome outcome = engine->launch(batch_of({0, 1}));
  EXPECT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.handle, infos[1].handle);
  EXPECT_THAT(calls, ElementsAre("can_batch", "declare 0,1", "admit 0,1"));
  EXPECT_EQ(engine->num_in_flight(), 0u);
}

TEST_F(EngineSteps, B_13_a_refused_step_postprocesses_nobody_and_gives_nothing) {
  resource->refuses_row = 1;
  EXPECT_FALSE(engine->launch(batch_of({0, 1})).ok());
  EXPECT_EQ(std::ranges::count_if(calls,
                                  [](const std::string& call) {
                                    return call.starts_with("postprocess") ||
                                           call.starts_with("filter");
                                  }),
            0);
}

TEST_F(EngineSteps, T_EN_8_the_first_lane_does_not_run_when_the_second_is_refused) {
  submodule->batches = false;
  resource->refuses_row = 1;
  EXPECT_FALSE(engine->launch(batch_of({0, 1})).ok());
  EXPECT_THAT(calls, ElementsAre("can_batch", "declare 0", "admit 0", "declare 1", "admit 1"));
  EXPECT_EQ(engine->num_in_flight(), 0u);
}

TEST_F(EngineSteps, B_11_a_refused_lane_costs_the_others_no_second_run) {
  submodule->batches = false;
  resource->refuses_row = 1;
  EXPECT_FALSE(engine->launch(batch_of({0, 1})).ok());
  resource->refuses_row = -100;
  run({0, 1});
  EXPECT_EQ(std::ranges::count(calls, "forward 0"), 1);
  EXPECT_THAT(output_of(0, Names::kToken), ElementsAre(1));
}

TEST_F(EngineSteps, T_EN_11_a_step_without_lanes_and_one_above_the_models_limit_are_refused) {
  EXPECT_THROW(std::ignore = engine->launch(batch_of({})), CheckError);
  EXPECT_THROW(std::ignore = engine->launch(batch_of({0, 1, 2, 3})), CheckError);
  EXPECT_THROW(std::ignore = engine->launch(unprepared_batch_of({0})), CheckError);
  EXPECT_THAT(calls, IsEmpty());
  engine->prepare_inputs(unprepared_batch_of({}));
  EXPECT_TRUE(batch.empty());
  run({0, 1, 2});
}

TEST_F(EngineSteps, T_EN_14_one_lane_declines_one_fails_and_one_runs) {
  submodule->declines_row = 1;
  submodule->prepare_fails_row = 0;
  engine->prepare_inputs(unprepared_batch_of({0, 1, 2}));
  EXPECT_THAT(batch.handles(), ElementsAre(infos[2].handle));
  EXPECT_THAT(batch.skipped(), ElementsAre(infos[1].handle));
  EXPECT_THAT(failures(), ElementsAre("0: bad picture"));
  ASSERT_TRUE(engine->launch(batch).ok());
  std::ignore = engine->complete();
  EXPECT_THAT(output_of(2, Names::kText), ElementsAre(1));
  EXPECT_EQ(engine->request_outputs().size(), 1u);
}

TEST_F(EngineSteps, B_02_lanes_that_stay_keep_their_order) {
  submodule->prepare_fails_row = 0;
  submodule->gives_rows = true;
  engine->prepare_inputs(unprepared_batch_of({3, 0, 2}));
  EXPECT_THAT(batch.handles(), ElementsAre(infos[3].handle, infos[2].handle));
  EXPECT_EQ(batch.infos()[0], &infos[3]);
  EXPECT_EQ(batch.infos()[1], &infos[2]);
  EXPECT_EQ(batch.sources().size(), 2u);
  ASSERT_TRUE(engine->launch(batch).ok());
  const HostRows rows = engine->complete();
  EXPECT_THAT(rows.handles, ElementsAre(infos[3].handle, infos[2].handle));
  EXPECT_THAT(rows.find(Names::kRowToken).span<const std::int32_t>(), ElementsAre(103, 102));
}

TEST_F(EngineSteps, T_NS_5_a_hook_is_told_what_the_walk_brings) {
  SignalMap signals;
  batch.clear();
  batch.add(infos[0].handle, infos[0], {},
            LaneSource{.walk = Names::kAlias, .signals = &signals, .is_final_stream_chunk = true});
  engine->prepare_inputs(batch);
  EXPECT_EQ(submodule->last_context.walk, Names::kAlias);
  EXPECT_EQ(submodule->last_context.signals, &signals);
  EXPECT_TRUE(submodule->last_context.is_final_stream_chunk);
}

TEST_F(EngineSteps, T_NS_5_a_uniform_row_replaces_the_hook_unless_a_lane_brings_its_own) {
  submodule->has_uniform_row = true;
  batch.clear();
  InputMetadata chunk;
  chunk.stream_chunks.emplace_back(Names::kText, StreamChunkInfo{});
  batch.add(infos[0].handle, infos[0], {}, LaneSource{});
  batch.add(infos[1].handle, infos[1], chunk, LaneSource{});
  batch.add(infos[2].handle, infos[2], {}, LaneSource{.is_final_stream_chunk = true});
  engine->prepare_inputs(batch);
  EXPECT_THAT(calls, ElementsAre("prepare 1", "prepare 2"));
  EXPECT_EQ(batch.inputs()[0], &submodule->uniform_row);
}

TEST_F(EngineSteps, C_11_a_uniform_row_is_shared_and_never_written) {
  submodule->has_uniform_row = true;
  submodule->uniform_row.input_seq_len = 1;
  engine->prepare_inputs(unprepared_batch_of({0, 1, 2}));
  static_assert(std::is_const_v<std::remove_pointer_t<decltype(batch.inputs())::value_type>>);
  ASSERT_TRUE(engine->launch(batch).ok());
  std::ignore = engine->complete();
  EXPECT_EQ(submodule->uniform_row.input_seq_len, 1);
  EXPECT_TRUE(submodule->uniform_row.tensor_inputs.empty());
}

TEST_F(EngineSteps, T_SP_9_a_whole_row_is_prepared_once_and_cut_for_every_step) {
  std::unique_ptr<NodeInputs> whole;
  for (std::int64_t start = 0; start < 4; start += 2) {
    batch.clear();
    batch.add(infos[0].handle, infos[0], {},
              LaneSource{.whole_row = &whole, .start = start, .end = start + 2});
    engine->prepare_inputs(batch);
    ASSERT_EQ(batch.inputs()[0]->input_seq_len, 2);
  }
  EXPECT_THAT(calls, ElementsAre("prepare 0", "split 0", "split 0"));
}

TEST_F(EngineSteps, T_HR_1_rows_of_lanes_that_ran_in_turn_follow_each_other) {
  submodule->batches = false;
  submodule->gives_rows = true;
  const HostRows rows = run({2, 0, 1});
  EXPECT_THAT(rows.handles, ElementsAre(infos[2].handle, infos[0].handle, infos[1].handle));
  EXPECT_THAT(rows.find(Names::kRowToken).span<const std::int32_t>(), ElementsAre(102, 100, 101));
}

TEST_F(EngineSteps, T_EN_1_two_engines_on_one_stream_see_each_others_work_in_order) {
  const Stream shared(*device);
  make_engine({}, {.staging_bytes = 1024, .stream = shared.ref()});
  EXPECT_EQ(engine->stream(), shared.ref());
  submodule->gives_rows = true;
  const std::unique_ptr<Engine> first = std::move(engine);
  testing::RecordingSubmodule& upstream = *submodule;
  make_engine({}, {.staging_bytes = 1024, .stream = shared.ref()});
  submodule->gives_rows = true;
  submodule->reads_rows_of = &upstream;
  ASSERT_TRUE(first->launch(batch_of({1})).ok());
  ASSERT_TRUE(engine->launch(batch_of({2})).ok()) << "enqueued before the first has completed";
  const HostRows rows = engine->complete();
  EXPECT_THAT(rows.find(Names::kRowToken).span<const std::int32_t>(), ElementsAre(101));
  EXPECT_EQ(first->num_in_flight(), 1u) << "completion is each engine's own";
  std::ignore = first->complete();
  engine.reset();  // before its stream
}

TEST_F(EngineSteps, T_EN_1_outputs_that_were_moved_out_outlive_the_steps_behind_them) {
  run({0});
  TensorList moved =
      std::move(*engine->request_outputs().find(infos[0].handle)->find(Names::kText));
  ASSERT_TRUE(engine->launch(batch_of({0})).ok());
  ASSERT_TRUE(engine->launch(batch_of({0})).ok());
  std::ignore = engine->complete();
  std::ignore = engine->complete();
  EXPECT_THAT(testing::host_values(moved.at(0)), ElementsAre(1));
  EXPECT_THAT(output_of(0, Names::kText), ElementsAre(3));
}

}  // namespace
}  // namespace rigel
