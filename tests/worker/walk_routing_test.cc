// Routing, pops and the life of requests.

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
using walk::kEmitToClient;
using walk::kNowhere;
using walk::Node;
using walk::Parallel;
using walk::Sequential;

/// One node feeds two; a third waits for both.
walk::Program diamond() {
  const Node top{.name = "top",
                 .inputs = {"in"},
                 .outputs = {{.signal = "y", .next_node = "left"},
                             {.signal = "y", .next_node = "right", .input = "other"},
                             {.signal = "y",
                              .next_node = kEmitToClient,
                              .counts_new_tokens = true,
                              .modality = walk::Modality::kAudio},
                             {.signal = "kept", .next_node = kNowhere, .persist = true}}};
  const Node left{
      .name = "left", .inputs = {"y"}, .outputs = {{.signal = "l", .next_node = "bottom"}}};
  const Node right{
      .name = "right", .inputs = {"other"}, .outputs = {{.signal = "r", .next_node = "bottom"}}};
  const Node bottom{.name = "bottom",
                    .inputs = {"l", "r"},
                    .outputs = {{.signal = "out", .next_node = kNowhere}}};
  return compile_walks({{"diamond", Sequential{{top, Parallel{{left, right}}, bottom}}}});
}

TEST(WalkRouting, B_46_every_kind_of_destination_gets_its_value) {
  NamedWalks walks(diamond(), 1);
  const RequestHandle request = walks.add(0, "diamond");
  walks.send(request, "top", "in", {value(1)});
  const RouteOutput& routed =
      walks.run(request, walks.at("diamond", "top"), {{"y", {value(2)}}, {"kept", {value(3)}}});
  ASSERT_EQ(routed.to_client.size(), 1U);
  EXPECT_EQ(routed.to_client[0].modality, walk::Modality::kAudio);
  ASSERT_EQ(routed.to_persist.size(), 1U);
  EXPECT_THAT(numbers_in(routed.to_persist[0].tensors), ElementsAre(3));
  EXPECT_THAT(numbers_in(walks.input(request, walks.at("diamond", "left"), "y")), ElementsAre(2));
  EXPECT_THAT(numbers_in(walks.input(request, walks.at("diamond", "right"), "other")),
              ElementsAre(2));
  walks.run(request, walks.at("diamond", "right"), {{"r", {value(4)}}});
  EXPECT_FALSE(walks.is_ready(request, walks.at("diamond", "bottom"))) << "one input is missing";
  walks.run(request, walks.at("diamond", "left"), {{"l", {value(5)}}});
  EXPECT_TRUE(walks.routed.finished_walks.empty());
  walks.run(request, walks.at("diamond", "bottom"), {{"out", {value(6)}}});
  EXPECT_TRUE(walks.routed.to_client.empty()) << "nowhere";
  EXPECT_THAT(walks.routed.finished_walks, ElementsAre(request));
  EXPECT_EQ(walks.runtime.num_tensors(), 0U);
}

TEST(WalkRouting, B_59_and_B_60_new_tokens_are_counted_once_a_signal_while_the_values_live) {
  NamedWalks walks(diamond(), 1);
  const RequestHandle request = walks.add(0, "diamond");
  walks.send(request, "top", "in");
  const std::int32_t tokens[] = {1, 2, 3};
  // The only handle: routing must count before anything lets it go.
  const RouteOutput& routed =
      walks.run(request, walks.at("diamond", "top"),
                {{"y", {Tensor::copy_of(std::span<const std::int32_t>(tokens)), value(4)}}});
  ASSERT_EQ(routed.new_tokens.size(), 1U);
  EXPECT_EQ(routed.new_tokens[0].num_tokens, 4);
}

TEST(WalkRouting, T_GR_12_a_pop_takes_all_requests_or_none) {
  NamedWalks walks(diamond(), 3);
  const WalkNode top = walks.at("diamond", "top");
  const RequestHandle requests[] = {walks.add(0, "diamond"), walks.add(1, "diamond"),
                                    walks.add(2, "diamond")};
  walks.send(requests[0], "top", "in");
  walks.send(requests[2], "top", "in");
  EXPECT_FALSE(walks.runtime.pop(top, requests, /*check_ready=*/true));
  EXPECT_TRUE(walks.is_ready(requests[0], top));
  EXPECT_TRUE(walks.is_ready(requests[2], top));
  EXPECT_THROW(static_cast<void>(walks.runtime.pop(top, requests, /*check_ready=*/false)),
               CheckError);
  EXPECT_TRUE(walks.is_ready(requests[0], top));
  walks.send(requests[1], "top", "in");
  EXPECT_TRUE(walks.runtime.pop(top, requests, /*check_ready=*/true));
  EXPECT_FALSE(walks.is_ready(requests[1], top));
  walks.runtime.push_back(top, requests);
  EXPECT_TRUE(walks.is_ready(requests[1], top));
}

TEST(WalkRouting, ReadyNodesAreFilteredByTargetExclusionAndRows) {
  NamedWalks walks(diamond(), 3);
  const WalkNode top = walks.at("diamond", "top");
  const WalkNode left = walks.at("diamond", "left");
  const RequestHandle a = walks.add(0, "diamond");
  const RequestHandle b = walks.add(2, "diamond");
  walks.send(a, "top", "in");
  walks.send(b, "top", "in");
  walks.run(a, top);
  ReadyNodes ready;
  walks.runtime.ready_nodes(nullptr, std::nullopt, std::nullopt, ready);
  ASSERT_EQ(ready.entries.size(), 3U);
  EXPECT_THAT(ready.handles_of(ready.entries[0]), ElementsAre(b));
  walks.runtime.ready_nodes(nullptr, left, std::nullopt, ready);
  EXPECT_THAT(ready.handles, ElementsAre(a));
  walks.runtime.ready_nodes(nullptr, std::nullopt, left, ready);
  EXPECT_EQ(ready.entries.size(), 2U);
  RowSet held(3);
  held.insert(0);
  walks.runtime.ready_nodes(&held, std::nullopt, std::nullopt, ready);
  EXPECT_THAT(ready.handles, ElementsAre(b));
  EXPECT_TRUE(walks.runtime.has_ready_excluding(std::span(&top, 1)));
  const WalkNode all[] = {top, left, walks.at("diamond", "right")};
  EXPECT_FALSE(walks.runtime.has_ready_excluding(all));
}

TEST(WalkRouting, ADoneNodeIsNotDoneTwice) {
  NamedWalks walks(diamond(), 1);
  const RequestHandle request = walks.add(0, "diamond");
  walks.send(request, "top", "in");
  walks.run(request, walks.at("diamond", "top"), {{"y", {value(1)}}});
  EXPECT_TRUE(
      walks.route(request, walks.at("diamond", "top"), {{"y", {value(2)}}}).to_client.empty());
}

TEST(WalkRouting, RemovalReleasesEverythingAndTheRowServesAnother) {
  NamedWalks walks(diamond(), 1);
  const WalkNode top = walks.at("diamond", "top");
  const RequestHandle first = walks.add(0, "diamond");
  walks.send(first, "top", "in", {value(1)});
  walks.run(first, top, {{"y", {value(2)}}});
  ASSERT_TRUE(walks.pop(first, walks.at("diamond", "left")));
  EXPECT_GT(walks.runtime.num_tensors(), 0U);
  walks.runtime.remove_request(first);
  walks.routed.clear();
  EXPECT_EQ(walks.runtime.num_tensors(), 0U);
  EXPECT_THROW(walks.send(first, "top", "in"), CheckError);
  const RequestHandle second = walks.add(0, "diamond", 2);
  walks.send(second, "top", "in");
  EXPECT_TRUE(walks.is_ready(second, top));
  // The step that carried the first one lands for nobody.
  EXPECT_FALSE(walks.land(first, walks.at("diamond", "left")));
  walks.runtime.set_in_flight(top, std::span(&first, 1), false);
  EXPECT_TRUE(walks.is_ready(second, top));
}

TEST(WalkRouting, AWalkMayBeLeftWhileItsLastStepIsInFlight) {
  NamedWalks walks(walk::compile(testing::language_model_walks(), {}), 1);
  const WalkNode prefill = walks.at("prefill", "LLM");
  const WalkNode decode = walks.at("decode", "LLM");
  const RequestHandle request = walks.add(0, "prefill");
  walks.send(request, "LLM", "text_inputs", {value(5)});
  ASSERT_TRUE(walks.pop(request, prefill));
  walks.runtime.set_walk(request, decode.walk);
  walks.send(request, "LLM", "text_inputs");
  ASSERT_TRUE(walks.pop(request, decode)) << "decodes before the prefill has come back";
  EXPECT_TRUE(walks.land(request, prefill));
  const RouteOutput& routed = walks.route(request, prefill, {{"new_token", {value(9)}}});
  ASSERT_EQ(routed.to_client.size(), 1U) << "the client still gets it";
  EXPECT_TRUE(routed.finished_walks.empty());
  EXPECT_TRUE(walks.land(request, decode));
  walks.route(request, decode);
  EXPECT_TRUE(walks.is_ready(request, decode));
}

TEST(WalkRouting, APartOfAPromptIsPushedBackOnceItIsLaunched) {
  NamedWalks walks(walk::compile(testing::language_model_walks(), {}), 1);
  const WalkNode prefill = walks.at("prefill", "LLM");
  const RequestHandle request = walks.add(0, "prefill");
  walks.send(request, "LLM", "text_inputs", {value(5)});
  for (int part = 0; part < 3; ++part) {
    ASSERT_TRUE(walks.pop(request, prefill));
    EXPECT_THAT(numbers_in(walks.input(request, prefill, "text_inputs")), ElementsAre(5));
    walks.runtime.push_back(prefill, std::span(&request, 1));
  }
  walks.run(request, prefill);
  EXPECT_THAT(walks.routed.finished_walks, ElementsAre(request));
  EXPECT_EQ(walks.runtime.num_tensors(), 0U);
}

TEST(WalkRouting, ARequestIsDoneWhenAllItsPartitionsAre) {
  const Node node_a{.name = "a", .inputs = {"in"}, .outputs = {}};
  const Node node_b{.name = "b", .inputs = {"in"}, .outputs = {}};
  NamedWalks walks(
      walk::compile({.walks = {{"wa", node_a}, {"wb", node_b}},
                     .partitions = {{.name = "pa", .walks = {"wa"}, .initial_walk = "wa"},
                                    {.name = "pb", .walks = {"wb"}, .initial_walk = "wb"}},
                     .connections = {}},
                    {}),
      2);
  const RequestHandle request = walks.add(1, "wa");
  walks.add(1, "wb");
  walks.send(request, "a", "in", {value(1)});
  walks.add(1, "wa");
  EXPECT_TRUE(walks.is_ready(request, walks.at("wa", "a"))) << "opening again keeps what is there";
  EXPECT_FALSE(walks.runtime.is_done(request));
  walks.runtime.mark_partition_done(request, walks.program.walk(walks.walk("wa")).partition);
  EXPECT_FALSE(walks.runtime.is_done(request));
  walks.runtime.mark_partition_done(request, walks.program.walk(walks.walk("wb")).partition);
  EXPECT_TRUE(walks.runtime.is_done(request));
}

}  // namespace
}  // namespace rigel
