#include "model/walk/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace rigel::walk {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of(const Definition& definition) {
  try {
    static_cast<void>(compile(definition, {}));
  } catch (const DefinitionError& error) {
    return error.what();
  }
  return "no error";
}

std::string error_of_walk(Section body) {
  return error_of({.walks = {{"w", std::move(body)}}});
}

Node node(const std::string& name, std::vector<std::string> inputs, std::vector<Edge> outputs) {
  return {.name = name, .inputs = std::move(inputs), .outputs = std::move(outputs)};
}
Edge edge(const std::string& signal, const std::string& to) {
  return {.signal = signal, .next_node = to};
}

TEST(WalkCompile, T_GR_6_a_signal_is_the_last_or_all_of_a_loop_and_not_both) {
  const Loop loop{.name = "l",
                  .sections = {node("a", {"x"}, {edge("x", "a"), edge("y", kNowhere)})},
                  .outputs = {edge("y", kEmitToClient)},
                  .accumulated_outputs = {edge("y", kEmitToClient)}};
  EXPECT_THAT(error_of_walk(loop), AllOf(HasSubstr("walk 'w'"), HasSubstr("loop 'l'"),
                                         HasSubstr("edge 'y'"), HasSubstr("keep one")));
}

TEST(WalkCompile, EachMistakeIsNamedWithItsPlaceAndItsFix) {
  const auto self = [](const std::string& name) { return node(name, {"x"}, {edge("x", name)}); };
  struct Case {
    Section body;
    std::vector<std::string> words;
  };
  const std::vector<Case> cases = {
      {node("a", {"x"}, {edge("x", "b")}), {"node 'a', edge 'x' to 'b'", "no such node"}},
      {Sequential{{node("a", {"x"}, {edge("y", "b")}), node("b", {"z"}, {})}},
       {"node 'a', edge 'y' to 'b'", "has no input 'y'", "`input`"}},
      {self("a"), {"node 'a', edge 'x' to 'a'", "backward", "Loop"}},
      {Sequential{{node("a", {"y"}, {}), node("b", {"x"}, {edge("y", "a")})}},
       {"node 'b', edge 'y' to 'a'", "backward"}},
      {Sequential{{node("a", {"x"}, {}), node("a", {"x"}, {})}}, {"node 'a'", "twice"}},
      {node("a", {}, {}), {"node 'a'", "0 inputs"}},
      {node("a", {"x", "x"}, {}), {"node 'a'", "input 'x' stands twice"}},
      {node("", {"x"}, {}), {"needs a name"}},
      {Sequential{}, {"without sections"}},
      {Loop{.name = "", .sections = {self("a")}}, {"loop ''", "needs a name", "stopped"}},
      {Loop{.name = "l", .sections = {self("a")}, .max_iters = -1},
       {"loop 'l'", "max_iters is -1"}},
      {Sequential{{Loop{.name = "l", .sections = {self("a")}},
                   Loop{.name = "l", .sections = {self("b")}}}},
       {"loop 'l'", "twice"}},
      {Sequential{
           {Loop{.name = "l", .sections = {node("a", {"x"}, {edge("x", "a"), edge("y", "b")})}},
            node("b", {"y"}, {})}},
       {"node 'a', edge 'y' to 'b'", "leaves loop 'l'", "outputs"}},
      {Loop{.name = "l", .sections = {self("a")}, .outputs = {edge("nothing", kEmitToClient)}},
       {"loop 'l'", "0 of its nodes", "'nothing'"}},
      {Parallel{{node("a", {"x"}, {edge("y", "b")}), node("b", {"y"}, {edge("x", "a")})}},
       {"node 'a'", "cycle", "Loop"}},
      {Sequential{{node("a", {"x"}, {edge("y", "c")}), node("b", {"x"}, {edge("y", "c")}),
                   node("c", {"y"}, {})}},
       {"node 'c', input 'y'", "two edges"}},
      {Loop{.name = "l",
            .sections = {node("a", {"x"}, {edge("y", "b")}),
                         node("b", {"y", "x"}, {edge("y", "b"), edge("x", "a")})}},
       {"node 'b', input 'y'", "in every iteration"}},
      {node("a", {"x"},
            {Edge{.signal = "y", .next_node = "b", .is_streaming = true, .target_partition = "p"}}),
       {"node 'a', edge 'y' to 'b'", "no connection", "walk::Connection"}},
      {Node{.name = "a", .inputs = {"x"}, .outputs = {}, .streaming_inputs = {"y"}},
       {"node 'a'", "streaming input 'y'"}},
      {Node{.name = "a", .inputs = {"x"}, .outputs = {}, .streaming_inputs = {"x"}},
       {"node 'a'", "streaming input 'x'", "0 streams"}},
  };
  for (const Case& wrong : cases) {
    const std::string error = error_of_walk(wrong.body);
    EXPECT_THAT(error, HasSubstr("walk 'w'"));
    for (const std::string& word : wrong.words) {
      EXPECT_THAT(error, HasSubstr(word));
    }
  }
}

TEST(WalkCompile, LoopsNestAsDeepAsARequestCanCount) {
  const std::function<Section(int)> nest = [&](int depth) -> Section {
    if (depth == 0) {
      return node("a", {"x"}, {edge("x", "a")});
    }
    return Loop{.name = "loop" + std::to_string(depth), .sections = {nest(depth - 1)}};
  };
  EXPECT_EQ(error_of_walk(nest(LoopCounters::kMaxLoops)), "no error");
  EXPECT_THAT(error_of_walk(nest(LoopCounters::kMaxLoops + 1)),
              AllOf(HasSubstr("nested 5 deep"), HasSubstr("kMaxLoops")));
  std::vector<Section> side_by_side;
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    side_by_side.push_back(Loop{.name = name, .sections = {node(name, {"x"}, {edge("x", name)})}});
  }
  EXPECT_THAT(error_of_walk(Parallel{side_by_side}), HasSubstr("5 loops"));
}

TEST(WalkCompile, PartitionsAndConnectionsFitTogether) {
  Definition good{.walks = {{"wa", node("a", {"x"},
                                        {Edge{.signal = "y",
                                              .next_node = "b",
                                              .is_streaming = true,
                                              .target_partition = "pb"}})},
                            {"wb", Node{.name = "b", .inputs = {"y"}, .streaming_inputs = {"y"}}}},
                  .partitions = {{.name = "pa", .walks = {"wa"}, .initial_walk = "wa"},
                                 {.name = "pb",
                                  .walks = {"wb"},
                                  .initial_walk = "wb",
                                  .producer_partitions = {"pa"}}},
                  .connections = {{"pa", "pb", "y", FixedChunks{1}}}};
  EXPECT_EQ(error_of(good), "no error");
  const auto broken = [&](const std::function<void(Definition&)>& break_it) {
    Definition wrong = good;
    break_it(wrong);
    return error_of(wrong);
  };
  EXPECT_THAT(broken([](Definition& d) { d.partitions[1].producer_partitions.clear(); }),
              HasSubstr("producer_partitions"));
  EXPECT_THAT(broken([](Definition& d) { d.partitions[0].walks = {"nothing"}; }),
              HasSubstr("no walk 'nothing'"));
  EXPECT_THAT(broken([](Definition& d) { d.partitions[0].initial_walk = "wb"; }),
              HasSubstr("initial_walk 'wb'"));
  EXPECT_THAT(broken([](Definition& d) { d.partitions[1].walks.push_back("wa"); }),
              HasSubstr("walk 'wa' is in two partitions"));
  EXPECT_THAT(broken([](Definition& d) { d.partitions.pop_back(); }), HasSubstr("walk 'wb'"));
  EXPECT_THAT(broken([](Definition& d) { d.walks[1].name = "wa"; }),
              HasSubstr("a name of its own"));
  EXPECT_THAT(broken([](Definition& d) { d.connections[0].to = "pa"; }),
              HasSubstr("two partitions"));
  EXPECT_THAT(broken([](Definition& d) { d.connections[0].signal = "z"; }),
              HasSubstr("no streaming edge"));
  EXPECT_THAT(broken([](Definition& d) { d.connections[0].chunks = FixedChunks{0}; }),
              HasSubstr("num_items is 0"));
  EXPECT_THAT(broken([](Definition& d) {
                d.connections[0].chunks = SlidingWindow{2, 3};
              }),
              HasSubstr("stride is 3"));
  EXPECT_THAT(broken([](Definition& d) {
                d.connections[0].chunks = LeftContext{2, 2};
              }),
              HasSubstr("left is 2"));
  EXPECT_THAT(broken([](Definition& d) { d.walks[1].body = node("b", {"y"}, {}); }),
              HasSubstr("streaming_inputs"));
  EXPECT_THAT(broken([](Definition& d) {
                d.walks.push_back({"wc", node("a", {"x"}, {})});
                d.partitions[1].walks.push_back("wc");
              }),
              HasSubstr("node 'a': the node is in another partition"));
}

TEST(WalkCompile, NamesThatAModelHasInternedKeepTheirIds) {
  Names names;
  names.walks.intern("prefill");
  names.walks.intern("decode");
  names.walks.intern("mixed");
  names.signals.intern("text_inputs");
  names.signals.intern("new_token");
  const Program program =
      compile({.walks = {{"decode", Loop{.name = "decode_loop",
                                         .sections = {node("LLM", {"text_inputs"},
                                                           {Edge{.signal = "new_token",
                                                                 .next_node = "LLM",
                                                                 .input = "text_inputs"}})}}}}},
              names);
  const CompiledWalk& decode = program.walk(WalkId{1});
  EXPECT_EQ(decode.id, WalkId{1});
  ASSERT_EQ(decode.nodes.size(), 1U);
  EXPECT_EQ(decode.inputs[0], SignalId{0});
  EXPECT_EQ(decode.outputs[0].signal, SignalId{1});
  EXPECT_EQ(program.innermost_loop(WalkId{1}, decode.nodes[0].id),
            program.names.loops.find("decode_loop"));
  ASSERT_EQ(decode.successors.size(), 1U);
  EXPECT_TRUE(decode.successors[0].is_new_iteration);
}

}  // namespace
}  // namespace rigel::walk
