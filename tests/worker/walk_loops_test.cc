// Loops: iterations, outputs, nesting, stops.

#include "tensor/error.h"
#include "tests/worker/walk_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rigel {
namespace {

using testing::compile_walks;
using ::testing::ElementsAre;
using testing::NamedWalks;
using testing::numbers_in;
using testing::value;
using walk::Edge;
using walk::kEmitToClient;
using walk::kNowhere;
using walk::Loop;
using walk::Node;
using walk::Parallel;
using walk::Sequential;

/// A loop of one node that gives its last value, and all values, to the client.
walk::Program counting_loop(std::int32_t max_iters) {
  const Node step{.name = "step",
                  .inputs = {"x", "constant"},
                  .outputs = {{.signal = "x", .next_node = "step"},
                              {.signal = "last", .next_node = kNowhere},
                              {.signal = "each", .next_node = kNowhere}}};
  return compile_walks(
      {{"count", Loop{.name = "counting",
                      .sections = {step},
                      .max_iters = max_iters,
                      .outputs = {{.signal = "last", .next_node = kEmitToClient}},
                      .accumulated_outputs = {{.signal = "each", .next_node = kEmitToClient}}}}});
}

TEST(WalkLoops, T_GR_1_outputs_leave_once_at_max_iters_and_T_GR_5_accumulate) {
  NamedWalks walks(counting_loop(3), 1);
  const WalkNode step = walks.at("count", "step");
  const RequestHandle request = walks.add(0, "count");
  walks.send(request, "step", "x", {value(0)});
  walks.send(request, "step", "constant", {value(7)});
  for (std::int32_t iteration = 0; iteration < 3; ++iteration) {
    EXPECT_EQ(walks.iteration(request, "count", "counting"), iteration);
    EXPECT_THAT(numbers_in(walks.input(request, step, "x")), ElementsAre(iteration));
    // What nothing inside makes is the same in each iteration.
    EXPECT_THAT(numbers_in(walks.input(request, step, "constant")), ElementsAre(7));
    const RouteOutput& routed = walks.run(request, step,
                                          {{"x", {value(iteration + 1)}},
                                           {"last", {value(10 + iteration)}},
                                           {"each", {value(20 + iteration)}}});
    if (iteration < 2) {
      EXPECT_TRUE(routed.to_client.empty());
      EXPECT_TRUE(routed.finished_walks.empty());
    }
  }
  ASSERT_EQ(walks.routed.to_client.size(), 2U);
  EXPECT_THAT(numbers_in(walks.routed.to_client[0].tensors), ElementsAre(12));
  EXPECT_THAT(numbers_in(walks.routed.to_client[1].tensors), ElementsAre(20, 21, 22));
  EXPECT_THAT(walks.routed.finished_walks, ElementsAre(request));
  EXPECT_FALSE(walks.is_ready(request, step));
  walks.routed.clear();
  EXPECT_EQ(walks.runtime.num_tensors(), 0U);
}

TEST(WalkLoops, T_GR_1_outputs_leave_once_at_an_early_stop) {
  NamedWalks walks(counting_loop(100), 1);
  const WalkNode step = walks.at("count", "step");
  const RequestHandle request = walks.add(0, "count");
  walks.send(request, "step", "x", {value(0)});
  walks.send(request, "step", "constant");
  walks.run(request, step, {{"x", {value(1)}}, {"last", {value(10)}}, {"each", {value(20)}}});
  ASSERT_TRUE(walks.pop(request, step));
  walks.land(request, step);
  EXPECT_EQ(walks.stop(request, step, walks.loop("counting")), 1U);
  EXPECT_EQ(walks.stop(request, step, walks.loop("counting")), 0U) << "it is stopping already";
  const RouteOutput& routed =
      walks.route(request, step, {{"x", {value(2)}}, {"last", {value(11)}}, {"each", {value(21)}}});
  ASSERT_EQ(routed.to_client.size(), 2U);
  EXPECT_THAT(numbers_in(routed.to_client[0].tensors), ElementsAre(11));
  EXPECT_THAT(numbers_in(routed.to_client[1].tensors), ElementsAre(20, 21));
  EXPECT_EQ(routed.ended_loops.size(), 1U);
  EXPECT_EQ(walks.stop(request, step, walks.loop("counting")), 0U) << "it has ended";
  EXPECT_EQ(walks.runtime.num_tensors(), 0U);
}

/// outer(begin, inner(body), end), where `end` feeds `begin`.
walk::Program nested_loops(std::int32_t outer_iters, std::int32_t inner_iters) {
  const Node begin{.name = "begin",
                   .inputs = {"seed"},
                   .outputs = {{.signal = "start", .next_node = "body", .input = "x"}}};
  const Node body{.name = "body",
                  .inputs = {"x", "style"},
                  .outputs = {{.signal = "x", .next_node = "body"},
                              {.signal = "result", .next_node = kNowhere}}};
  const Node end{.name = "end",
                 .inputs = {"result"},
                 .outputs = {{.signal = "seed", .next_node = "begin"},
                             {.signal = "final", .next_node = kEmitToClient}}};
  const Loop inner{.name = "inner",
                   .sections = {body},
                   .max_iters = inner_iters,
                   .outputs = {{.signal = "result", .next_node = "end"}}};
  return compile_walks(
      {{"nested",
        Loop{.name = "outer", .sections = {begin, inner, end}, .max_iters = outer_iters}}});
}

TEST(WalkLoops, T_GR_2_nested_loops_count_and_refill_each_at_its_own_level) {
  NamedWalks walks(nested_loops(2, 3), 1);
  const WalkNode begin = walks.at("nested", "begin");
  const WalkNode body = walks.at("nested", "body");
  const WalkNode end = walks.at("nested", "end");
  const RequestHandle request = walks.add(0, "nested");
  walks.send(request, "begin", "seed", {value(100)});
  walks.send(request, "body", "style", {value(5)});
  for (std::int32_t outer = 0; outer < 2; ++outer) {
    EXPECT_FALSE(walks.is_ready(request, body));
    EXPECT_FALSE(walks.is_ready(request, end));
    EXPECT_THAT(numbers_in(walks.input(request, begin, "seed")), ElementsAre(100 + outer));
    walks.run(request, begin, {{"start", {value(10 * outer)}}});
    for (std::int32_t inner = 0; inner < 3; ++inner) {
      EXPECT_EQ(walks.iteration(request, "nested", "outer"), outer);
      EXPECT_EQ(walks.iteration(request, "nested", "inner"), inner);
      EXPECT_THAT(numbers_in(walks.input(request, body, "x")), ElementsAre(10 * outer + inner));
      EXPECT_THAT(numbers_in(walks.input(request, body, "style")), ElementsAre(5));
      EXPECT_FALSE(walks.is_ready(request, end));
      walks.run(request, body,
                {{"x", {value(10 * outer + inner + 1)}}, {"result", {value(50 + inner)}}});
    }
    EXPECT_FALSE(walks.is_ready(request, body));
    EXPECT_THAT(numbers_in(walks.input(request, end, "result")), ElementsAre(52));
    walks.run(request, end, {{"seed", {value(101 + outer)}}, {"final", {value(outer)}}});
    ASSERT_EQ(walks.routed.to_client.size(), 1U);
  }
  EXPECT_THAT(walks.routed.finished_walks, ElementsAre(request));
  walks.routed.clear();
  EXPECT_EQ(walks.runtime.num_tensors(), 0U);
}

TEST(WalkLoops, T_GR_14_a_stop_of_an_older_activation_is_passed_over) {
  NamedWalks walks(nested_loops(3, 4), 1);
  const RequestHandle request = walks.add(0, "nested");
  const WalkId nested = walks.walk("nested");
  walks.send(request, "begin", "seed");
  walks.send(request, "body", "style");
  walks.run(request, walks.at("nested", "begin"));
  walks.run(request, walks.at("nested", "body"));
  const LoopTime first = walks.runtime.loop_time(request, nested, walks.loop("inner"));
  walks.run(request, walks.at("nested", "body"));
  EXPECT_TRUE(walks.runtime.stop_loop_at(first, nested))
      << "another iteration, the same activation";
  EXPECT_FALSE(walks.runtime.stop_loop_at(first, nested)) << "twice";
  walks.run(request, walks.at("nested", "body"));
  walks.run(request, walks.at("nested", "end"));
  walks.run(request, walks.at("nested", "begin"));
  EXPECT_FALSE(walks.runtime.stop_loop_at(first, nested));
  EXPECT_TRUE(walks.runtime.stop_loop_at(
      walks.runtime.loop_time(request, nested, walks.loop("inner")), nested));
}

TEST(WalkLoops, B_38_a_double_stop_does_not_end_the_next_activation) {
  NamedWalks walks(nested_loops(2, 5), 1);
  const RequestHandle request = walks.add(0, "nested");
  const WalkId nested = walks.walk("nested");
  const WalkNode body = walks.at("nested", "body");
  walks.send(request, "begin", "seed");
  walks.send(request, "body", "style");
  walks.run(request, walks.at("nested", "begin"));
  const LoopTime stop = walks.runtime.loop_time(request, nested, walks.loop("inner"));
  EXPECT_TRUE(walks.runtime.stop_loop_at(stop, nested));
  walks.run(request, body);
  EXPECT_FALSE(walks.runtime.stop_loop_at(stop, nested)) << "the loop has ended";
  walks.run(request, walks.at("nested", "end"));
  walks.run(request, walks.at("nested", "begin"));
  EXPECT_FALSE(walks.runtime.stop_loop_at(stop, nested)) << "another activation";
  for (int iteration = 0; iteration < 5; ++iteration) {
    ASSERT_TRUE(walks.is_ready(request, body));
    walks.run(request, body);
  }
  EXPECT_FALSE(walks.is_ready(request, body));
  // A stop of a pass that is over, too.
  walks.runtime.set_walk(request, nested);
  EXPECT_FALSE(walks.runtime.stop_loop_at(stop, nested));
}

TEST(WalkLoops, B_35_and_B_37_a_stop_of_a_loop_that_the_walk_lacks_changes_nothing) {
  walk::Definition definition = testing::language_model_walks(4);
  walk::Names names;
  names.loops.intern("another_loop");
  NamedWalks walks(walk::compile(definition, names), 1);
  const RequestHandle request = walks.add(0, "prefill");
  walks.send(request, "LLM", "text_inputs");
  const WalkNode prefill = walks.at("prefill", "LLM");
  EXPECT_EQ(walks.stop(request, prefill, walks.loop("decode_loop")), 0U);
  EXPECT_EQ(walks.stop(request, prefill, walks.loop("another_loop")), 0U);
  EXPECT_EQ(walks.stop(request, prefill, LoopId{999}), 0U);
  walks.run(request, prefill);
  walks.runtime.set_walk(request, walks.walk("decode"));
  walks.send(request, "LLM", "text_inputs");
  const WalkNode decode = walks.at("decode", "LLM");
  // A stop that is meant for the walk before does not reach this one.
  EXPECT_EQ(walks.stop(request, prefill, walks.loop("decode_loop")), 0U);
  for (int iteration = 0; iteration < 4; ++iteration) {
    ASSERT_TRUE(walks.is_ready(request, decode));
    walks.run(request, decode);
  }
  EXPECT_FALSE(walks.is_ready(request, decode));
}

TEST(WalkLoops, T_GR_3_an_input_that_is_there_waits_for_the_next_iteration) {
  NamedWalks walks(counting_loop(5), 1);
  const WalkNode step = walks.at("count", "step");
  const RequestHandle request = walks.add(0, "count");
  EXPECT_TRUE(walks.send(request, "step", "constant", {value(1)}));
  EXPECT_TRUE(walks.send(request, "step", "constant", {value(2)}, /*can_buffer=*/true));
  walks.send(request, "step", "x");
  EXPECT_THAT(numbers_in(walks.input(request, step, "constant")), ElementsAre(1));
  walks.run(request, step);
  EXPECT_THAT(numbers_in(walks.input(request, step, "constant")), ElementsAre(2));
  walks.run(request, step);
  EXPECT_THAT(numbers_in(walks.input(request, step, "constant")), ElementsAre(2));
}

TEST(WalkLoops, T_GR_4_an_input_without_a_place_is_refused_and_stays_with_its_sender) {
  NamedWalks walks(counting_loop(5), 1);
  const RequestHandle request = walks.add(0, "count");
  EXPECT_TRUE(walks.send(request, "step", "constant", {value(1)}));
  std::vector<WalkInput> inputs;
  const NodeId step = walks.at("count", "step").node;
  inputs.push_back({request, step, walks.signal("constant"), {value(2)}});
  inputs.push_back({request, step, walks.signal("x"), {value(3)}});
  inputs.push_back({request, step, walks.signal("constant"), {value(4)}});
  std::vector<std::uint32_t> refused;
  walks.runtime.ingest(inputs, /*can_buffer=*/false, false, refused);
  EXPECT_THAT(refused, ElementsAre(0U, 2U));
  EXPECT_THAT(numbers_in(inputs[0].tensors), ElementsAre(2));
  EXPECT_TRUE(inputs[1].tensors.empty()) << "it was taken";
  walks.runtime.ingest(inputs, /*can_buffer=*/true, false, refused);
  EXPECT_THAT(refused, ElementsAre(2U)) << "one value waits for the next iteration, and no more";
  EXPECT_THROW(walks.send(request, "step", "last"), CheckError) << "no input of that name";
}

TEST(WalkLoops, RequestsHaveBoundsOfTheirOwn) {
  NamedWalks walks(walk::compile(testing::language_model_walks(), {}), 2);
  const WalkNode decode = walks.at("decode", "LLM");
  const RequestHandle requests[] = {walks.add(0, "decode"), walks.add(1, "decode")};
  walks.runtime.set_loop(requests[0], decode.walk, walks.loop("decode_loop"), 2);
  walks.runtime.set_loop(requests[1], decode.walk, walks.loop("decode_loop"), 7, 4);
  EXPECT_THROW(walks.runtime.set_loop(requests[1], decode.walk, walks.loop("decode_loop"), 4, 4),
               CheckError);
  int num_steps[] = {0, 0};
  for (int row = 0; row < 2; ++row) {
    walks.send(requests[row], "LLM", "text_inputs");
    while (walks.is_ready(requests[row], decode)) {
      walks.run(requests[row], decode);
      ++num_steps[row];
    }
  }
  EXPECT_EQ(num_steps[0], 2);
  EXPECT_EQ(num_steps[1], 3);
}

}  // namespace
}  // namespace rigel
