// One step ahead: who continues, what a late stop makes worthless, and undoing.

#include "tensor/error.h"
#include "tests/worker/walk_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rigel {
namespace {

using testing::compile_walks;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::NamedWalks;
using testing::numbers_in;
using testing::value;
using walk::kEmitToClient;
using walk::kNowhere;
using walk::Loop;
using walk::Node;

class SpeculationTest : public ::testing::Test {
 protected:
  /// Requests in the decode loop, their first step popped.
  void start(std::initializer_list<std::int32_t> max_iters) {
    walks = std::make_unique<NamedWalks>(walk::compile(testing::language_model_walks(), {}), 8);
    decode = walks->at("decode", "LLM");
    for (const std::int32_t bound : max_iters) {
      const RequestHandle handle = walks->add(static_cast<std::int32_t>(handles.size()), "decode");
      walks->runtime.set_loop(handle, decode.walk, walks->loop("decode_loop"), bound);
      walks->send(handle, "LLM", "text_inputs");
      handles.push_back(handle);
    }
    ASSERT_TRUE(walks->runtime.pop(decode, handles, true));
  }
  /// A step of `rows` comes back; those that were not wasted are routed.
  std::vector<RequestHandle> complete(const std::vector<RequestHandle>& rows,
                                      const std::vector<RequestHandle>& stops = {}) {
    std::vector<std::uint32_t> wasted;
    walks->runtime.land(decode, rows, wasted);
    std::vector<RequestHandle> left;
    for (std::uint32_t lane = 0; lane < rows.size(); ++lane) {
      if (std::ranges::find(wasted, lane) == wasted.end()) {
        left.push_back(rows[lane]);
      }
    }
    for (const RequestHandle handle : stops) {
      EXPECT_EQ(walks->stop(handle, decode, walks->loop("decode_loop")), 1U);
    }
    walks->runtime.route({decode, left, {}}, walks->routed);
    return left;
  }

  std::unique_ptr<NamedWalks> walks;
  WalkNode decode;
  std::vector<RequestHandle> handles;
};

TEST_F(SpeculationTest, ATargetIsNamedWithWhatItConsumes) {
  start({10});
  std::vector<SpeculationTarget> targets;
  walks->runtime.targets(decode, handles[0], targets);
  ASSERT_EQ(targets.size(), 1U);
  EXPECT_EQ(targets[0].node, decode.node);
  EXPECT_TRUE(targets[0].is_new_iteration);
  EXPECT_EQ(targets[0].loop, walks->loop("decode_loop"));
  ASSERT_EQ(targets[0].consumed.size(), 1U);
  EXPECT_EQ(targets[0].consumed[0].signal, walks->signal("new_token"));
  EXPECT_EQ(targets[0].consumed[0].input, walks->signal("text_inputs"));
}

TEST_F(SpeculationTest, B_36_a_loop_of_1_2_or_3_iterations_ends_on_time_one_step_ahead) {
  start({1, 2, 3});
  std::vector<RequestHandle> flying = handles;
  std::vector<int> num_run(3);
  std::vector<int> ended_after(3);
  while (!flying.empty()) {
    const std::vector<RequestHandle> ahead = walks->step_ahead(flying, decode, "LLM");
    for (const RequestHandle handle : complete(flying)) {
      ++num_run[static_cast<std::size_t>(handle.row)];
    }
    for (const auto& [handle, loop] : walks->routed.ended_loops) {
      ended_after[static_cast<std::size_t>(handle.row)] =
          num_run[static_cast<std::size_t>(handle.row)];
    }
    flying = ahead;
  }
  EXPECT_THAT(num_run, ElementsAre(1, 2, 3));
  EXPECT_THAT(ended_after, ElementsAre(1, 2, 3));
}

TEST_F(SpeculationTest, AStopThatIsKnownLateWastesOneStepOfItsRequestAlone) {
  start({100, 100});
  const std::vector<RequestHandle> ahead = walks->step_ahead(handles, decode, "LLM");
  EXPECT_THAT(ahead, ElementsAre(handles[0], handles[1]));
  complete(handles, {handles[0]});
  EXPECT_EQ(walks->routed.finished_walks, std::vector{handles[0]});
  EXPECT_THAT(walks->step_ahead(ahead, decode, "LLM"), ElementsAre(handles[1]));
  EXPECT_THAT(complete(ahead), ElementsAre(handles[1]));
  EXPECT_FALSE(walks->is_ready(handles[0], decode));
}

TEST_F(SpeculationTest, ARequestWhoseLoopIsStoppingDoesNotContinue) {
  start({100, 100});
  ASSERT_EQ(walks->stop(handles[1], decode, walks->loop("decode_loop")), 1U);
  EXPECT_THAT(walks->step_ahead(handles, decode, "LLM"), ElementsAre(handles[0]));
}

TEST_F(SpeculationTest, B_69_a_stop_does_not_outlive_the_steps_that_it_made_worthless) {
  start({100});
  const std::vector<RequestHandle> ahead = walks->step_ahead(handles, decode, "LLM");
  complete(handles, handles);
  // The same loop again at once, with the wasted step still in flight; it is all of its batch.
  walks->runtime.set_walk(handles[0], decode.walk);
  walks->send(handles[0], "LLM", "text_inputs");
  ASSERT_TRUE(walks->pop(handles[0], decode));
  EXPECT_THAT(complete(ahead), IsEmpty());
  EXPECT_THAT(complete(handles), ElementsAre(handles[0])) << "this step is not wasted";
  EXPECT_EQ(walks->iteration(handles[0], "decode", "decode_loop"), 1);
  EXPECT_TRUE(walks->is_ready(handles[0], decode));
}

TEST_F(SpeculationTest, T_GR_7_a_dry_run_and_an_abandoned_speculation_leave_no_trace) {
  start({100});
  std::vector<SpeculationTarget> targets;
  walks->runtime.targets(decode, handles[0], targets);
  SpeculatedRows rows;
  std::vector<std::uint32_t> returned;
  walks->runtime.speculate(decode, decode.node, handles, 10, {}, rows);
  EXPECT_THAT(rows.handles, ElementsAre(handles[0]));
  walks->runtime.abandon(rows.id, {}, returned);
  complete(handles);
  EXPECT_EQ(walks->iteration(handles[0], "decode", "decode_loop"), 1);
  EXPECT_TRUE(walks->is_ready(handles[0], decode));
}

TEST_F(SpeculationTest, ASpeculationIsSettledOnce) {
  start({100});
  SpeculatedRows rows;
  std::vector<std::uint32_t> returned;
  walks->runtime.speculate(decode, decode.node, handles, 10, {}, rows);
  walks->runtime.commit(rows.id, {}, {}, returned);
  EXPECT_THROW(walks->runtime.commit(rows.id, {}, {}, returned), CheckError);
  EXPECT_THROW(walks->runtime.abandon(rows.id, {}, returned), CheckError);
}

TEST_F(SpeculationTest, RowsAreCappedInOrderAndDroppedOnesStayBehind) {
  start({100, 100, 100, 100});
  SpeculatedRows rows;
  std::vector<std::uint32_t> returned;
  walks->runtime.speculate(decode, decode.node, handles, 3, {}, rows);
  EXPECT_THAT(rows.handles, ElementsAre(handles[0], handles[1], handles[2]));
  walks->runtime.commit(rows.id, std::span(&handles[1], 1), {}, returned);
  complete(handles);
  // The others' next step is in flight already.
  EXPECT_FALSE(walks->is_ready(handles[0], decode));
  EXPECT_TRUE(walks->is_ready(handles[1], decode));
  EXPECT_FALSE(walks->is_ready(handles[2], decode));
  EXPECT_TRUE(walks->is_ready(handles[3], decode));
}

TEST_F(SpeculationTest, B_70_committed_rows_that_are_not_run_become_ready_again) {
  start({100});
  const std::vector<RequestHandle> ahead = walks->step_ahead(handles, decode, "LLM");
  walks->runtime.set_in_flight(decode, ahead, false);  // the launch failed
  complete(handles);
  EXPECT_TRUE(walks->is_ready(handles[0], decode));
  // The same behind the step in flight's completion, and with rows popped fresh beside.
  ASSERT_TRUE(walks->pop(handles[0], decode));
  const std::vector<RequestHandle> again = walks->step_ahead(handles, decode, "LLM");
  complete(handles);
  EXPECT_FALSE(walks->is_ready(handles[0], decode));
  walks->runtime.set_in_flight(decode, again, false);
  EXPECT_TRUE(walks->is_ready(handles[0], decode));
  ASSERT_TRUE(walks->pop(handles[0], decode));
  walks->runtime.push_back(decode, handles);
  EXPECT_TRUE(walks->is_ready(handles[0], decode));
}

TEST_F(SpeculationTest, B_70_a_commit_after_the_loop_has_ended_is_a_wasted_step) {
  start({100});
  SpeculatedRows rows;
  std::vector<std::uint32_t> returned;
  walks->runtime.speculate(decode, decode.node, handles, 10, {}, rows);
  complete(handles, handles);
  walks->runtime.commit(rows.id, {}, {}, returned);
  EXPECT_THAT(complete(rows.handles), IsEmpty());
}

TEST_F(SpeculationTest, B_10_counters_advance_when_a_step_is_routed_and_not_when_it_is_built) {
  start({100});
  EXPECT_EQ(walks->iteration(handles[0], "decode", "decode_loop"), 0);
  const std::vector<RequestHandle> ahead = walks->step_ahead(handles, decode, "LLM");
  EXPECT_EQ(walks->iteration(handles[0], "decode", "decode_loop"), 0);
  complete(handles);
  EXPECT_EQ(walks->iteration(handles[0], "decode", "decode_loop"), 1);
  complete(ahead);
  EXPECT_EQ(walks->iteration(handles[0], "decode", "decode_loop"), 2);
}

TEST_F(SpeculationTest, ARequestRemovedWhileItFliesLandsForNobody) {
  start({100, 100});
  SpeculatedRows rows;
  std::vector<std::uint32_t> returned;
  walks->runtime.speculate(decode, decode.node, handles, 10, {}, rows);
  walks->runtime.remove_request(handles[0]);
  const RequestHandle heir = walks->add(0, "decode", 2);
  walks->send(heir, "LLM", "text_inputs");
  walks->runtime.commit(rows.id, {}, {}, returned);
  EXPECT_THAT(complete(handles), ElementsAre(handles[1]));
  EXPECT_THAT(complete(rows.handles), ElementsAre(handles[1]));
  EXPECT_TRUE(walks->is_ready(heir, decode));
}

/// Two nodes in a loop; the second may be kept from running ahead.
walk::Program two_nodes(bool second_is_async) {
  const Node first{
      .name = "first", .inputs = {"x"}, .outputs = {{.signal = "y", .next_node = "second"}}};
  const Node second{.name = "second",
                    .inputs = {"y"},
                    .outputs = {{.signal = "x", .next_node = "first"}},
                    .enable_async_scheduling = second_is_async};
  return compile_walks({{"pair", Loop{.name = "pairs", .sections = {first, second}}}});
}

TEST(WalkSpeculation, TheNextNodeOfAnIterationRunsAheadAndSoDoesTheNextIteration) {
  NamedWalks walks(two_nodes(true), 1);
  const WalkNode first = walks.at("pair", "first");
  const WalkNode second = walks.at("pair", "second");
  const RequestHandle request = walks.add(0, "pair");
  walks.send(request, "first", "x");
  ASSERT_TRUE(walks.pop(request, first));
  for (int iteration = 0; iteration < 3; ++iteration) {
    EXPECT_EQ(walks.step_ahead(std::span(&request, 1), first, "second").size(), 1U);
    EXPECT_TRUE(walks.land(request, first));
    walks.route(request, first, {{"y", {value(iteration)}}});
    EXPECT_FALSE(walks.is_ready(request, second)) << "it is in flight";
    std::vector<SpeculationTarget> targets;
    walks.runtime.targets(second, request, targets);
    ASSERT_EQ(targets.size(), 1U);
    EXPECT_EQ(targets[0].node, first.node);
    EXPECT_EQ(walks.step_ahead(std::span(&request, 1), second, "first").size(), 1U);
    EXPECT_THAT(numbers_in(walks.input(request, second, "y")), ElementsAre(iteration));
    EXPECT_TRUE(walks.land(request, second));
    walks.route(request, second, {{"x", {value(iteration)}}});
    EXPECT_FALSE(walks.is_ready(request, first));
  }
  EXPECT_EQ(walks.iteration(request, "pair", "pairs"), 3);
}

TEST(WalkSpeculation, ANodeThatIsNotAsynchronousIsNotScheduledAhead) {
  NamedWalks walks(two_nodes(false), 1);
  const WalkNode first = walks.at("pair", "first");
  const RequestHandle request = walks.add(0, "pair");
  walks.send(request, "first", "x");
  ASSERT_TRUE(walks.pop(request, first));
  std::vector<SpeculationTarget> targets;
  walks.runtime.targets(first, request, targets);
  EXPECT_TRUE(targets.empty());
  SpeculatedRows rows;
  EXPECT_THROW(walks.runtime.speculate(first, walks.at("pair", "second").node,
                                       std::span(&request, 1), 10, {}, rows),
               CheckError);
}

TEST(WalkSpeculation, ANodeThatWaitsForSomethingElseIsNoTarget) {
  const Node step{
      .name = "step",
      .inputs = {"x", "other"},
      .outputs = {{.signal = "x", .next_node = "step"}, {.signal = "go", .next_node = "side"}}};
  const Node side{
      .name = "side", .inputs = {"go"}, .outputs = {{.signal = "other", .next_node = "step"}}};
  NamedWalks walks(compile_walks({{"w", Loop{.name = "l", .sections = {step, side}}}}), 1);
  const WalkNode step_node = walks.at("w", "step");
  const RequestHandle request = walks.add(0, "w");
  walks.send(request, "step", "x");
  walks.send(request, "step", "other");
  ASSERT_TRUE(walks.pop(request, step_node));
  std::vector<SpeculationTarget> targets;
  walks.runtime.targets(step_node, request, targets);
  ASSERT_EQ(targets.size(), 1U);
  EXPECT_EQ(targets[0].node, walks.at("w", "side").node);
}

}  // namespace
}  // namespace rigel
