// Stream chunks on their way into nodes, and back where a step ahead is undone.

#include "tensor/error.h"
#include "tests/worker/walk_models.h"
#include "worker/stream_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rigel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::NamedWalks;
using testing::numbers_in;
using testing::value;

/// A producer whose frames a loop in another partition turns into sound; the loop keeps a state.
walk::Program vocoder() {
  const walk::Node talker{.name = "talker",
                          .inputs = {"text"},
                          .outputs = {{.signal = "text", .next_node = "talker"},
                                      {.signal = "frame",
                                       .next_node = "vocoder",
                                       .is_streaming = true,
                                       .target_partition = "sound"}}};
  const walk::Node vocoder{.name = "vocoder",
                           .inputs = {"state", "frame"},
                           .outputs = {{.signal = "state", .next_node = "vocoder"},
                                       {.signal = "wave", .next_node = walk::kEmitToClient}},
                           .streaming_inputs = {"frame"}};
  return walk::compile(
      {.walks = {{"talk", walk::Loop{.name = "talking", .sections = {talker}}},
                 {"vocode", walk::Loop{.name = "vocoding", .sections = {vocoder}}}},
       .partitions = {{.name = "words", .walks = {"talk"}, .initial_walk = "talk"},
                      {.name = "sound",
                       .walks = {"vocode"},
                       .initial_walk = "vocode",
                       .producer_partitions = {"words"}}},
       .connections = {{"words", "sound", "frame", walk::FixedChunks{2}}}},
      {});
}

class WalkStreams : public ::testing::Test {
 protected:
  void start() {
    walks.add(0, "talk");
    walks.add(0, "vocode");
    walks.send(request, "vocoder", "state");
  }
  bool send_chunk(std::int32_t frame) {
    return walks.send(request, "vocoder", "frame", {value(frame)}, false, /*is_streaming=*/true);
  }
  std::vector<StreamOffer> offer(std::int32_t frame) const {
    return {{request, walks.signal("frame"), {value(frame)}}};
  }

  NamedWalks walks{vocoder(), 1};
  const RequestHandle request{0, 1};
  const WalkNode node = walks.at("vocode", "vocoder");
  SpeculatedRows rows;
  std::vector<std::uint32_t> returned;
};

TEST_F(WalkStreams, ItemsLeaveTheirProducerForTheStream) {
  start();
  walks.send(request, "talker", "text");
  const RouteOutput& routed =
      walks.run(request, walks.at("talk", "talker"), {{"frame", {value(1), value(2)}}});
  ASSERT_EQ(routed.to_stream.size(), 1U);
  EXPECT_EQ(routed.to_stream[0].stream, walk::StreamId{0});
  EXPECT_THAT(numbers_in(routed.to_stream[0].tensors), ElementsAre(1, 2));
}

TEST_F(WalkStreams, B_68_a_chunk_enters_once_everything_else_is_there) {
  walks.add(0, "vocode");
  EXPECT_FALSE(send_chunk(1)) << "the state is missing";
  walks.send(request, "vocoder", "state");
  EXPECT_FALSE(walks.is_ready(request, node));
  EXPECT_TRUE(send_chunk(1));
  EXPECT_TRUE(walks.is_ready(request, node));
  EXPECT_FALSE(send_chunk(2)) << "never buffered";
  ASSERT_TRUE(walks.pop(request, node));
  EXPECT_FALSE(send_chunk(2)) << "the step in flight still uses the first";
  walks.land(request, node);
  walks.route(request, node);
  EXPECT_FALSE(walks.is_ready(request, node)) << "each iteration takes a chunk of its own";
  EXPECT_TRUE(send_chunk(2));
  EXPECT_THAT(numbers_in(walks.input(request, node, "frame")), ElementsAre(2));
  EXPECT_THROW(walks.send(request, "vocoder", "frame", {}, false, false), CheckError);
}

TEST_F(WalkStreams, AStepAheadTakesItsChunkAlong) {
  start();
  send_chunk(1);
  ASSERT_TRUE(walks.pop(request, node));
  std::vector<SpeculationTarget> targets;
  walks.runtime.targets(node, request, targets);
  ASSERT_EQ(targets.size(), 1U);
  walks.runtime.speculate(node, node.node, std::span(&request, 1), 10, {}, rows);
  EXPECT_THAT(rows.handles, IsEmpty()) << "no chunk, no step";
  walks.runtime.abandon(rows.id, {}, returned);

  std::vector<StreamOffer> offers = offer(2);
  walks.runtime.speculate(node, node.node, std::span(&request, 1), 10, offers, rows);
  EXPECT_THAT(rows.handles, ElementsAre(request));
  EXPECT_THAT(rows.accepted_offers, ElementsAre(0U));
  EXPECT_TRUE(offers[0].tensors.empty());
  walks.runtime.commit(rows.id, {}, offers, returned);
  EXPECT_THAT(returned, IsEmpty());
  EXPECT_THAT(numbers_in(walks.input(request, node, "frame")), ElementsAre(1));
  walks.land(request, node);
  walks.route(request, node);
  EXPECT_THAT(numbers_in(walks.input(request, node, "frame")), ElementsAre(2));
  EXPECT_FALSE(send_chunk(3));
  walks.land(request, node);
  walks.route(request, node);
  EXPECT_TRUE(send_chunk(3));
}

TEST_F(WalkStreams, T_GR_8_and_B_33_an_abandoned_chunk_comes_back_once) {
  start();
  send_chunk(1);
  ASSERT_TRUE(walks.pop(request, node));
  std::vector<StreamOffer> offers = offer(2);
  walks.runtime.speculate(node, node.node, std::span(&request, 1), 10, offers, rows);
  walks.runtime.abandon(rows.id, offers, returned);
  EXPECT_THAT(returned, ElementsAre(0U));
  EXPECT_THAT(numbers_in(offers[0].tensors), ElementsAre(2));
  EXPECT_EQ(walks.runtime.num_tensors(), 1U) << "the chunk of the step in flight";
  walks.land(request, node);
  walks.route(request, node);
  EXPECT_FALSE(walks.is_ready(request, node));
  EXPECT_EQ(walks.runtime.num_tensors(), 0U);
}

TEST_F(WalkStreams, B_33_a_chunk_that_became_current_stays_and_does_not_come_back) {
  start();
  send_chunk(1);
  ASSERT_TRUE(walks.pop(request, node));
  std::vector<StreamOffer> offers = offer(2);
  walks.runtime.speculate(node, node.node, std::span(&request, 1), 10, offers, rows);
  walks.land(request, node);
  walks.route(request, node);
  walks.runtime.abandon(rows.id, offers, returned);
  EXPECT_THAT(returned, IsEmpty());
  EXPECT_TRUE(offers[0].tensors.empty());
  EXPECT_TRUE(walks.is_ready(request, node));
  EXPECT_THAT(numbers_in(walks.input(request, node, "frame")), ElementsAre(2));
}

TEST_F(WalkStreams, B_33_a_dropped_row_gives_its_chunk_back) {
  start();
  send_chunk(1);
  ASSERT_TRUE(walks.pop(request, node));
  std::vector<StreamOffer> offers = offer(2);
  walks.runtime.speculate(node, node.node, std::span(&request, 1), 10, offers, rows);
  walks.runtime.commit(rows.id, std::span(&request, 1), offers, returned);
  EXPECT_THAT(returned, ElementsAre(0U));
  EXPECT_THAT(numbers_in(offers[0].tensors), ElementsAre(2));
  walks.land(request, node);
  walks.route(request, node);
  EXPECT_FALSE(walks.is_ready(request, node));
  EXPECT_TRUE(send_chunk(2)) << "from its buffer, as if nothing had been";
}

TEST_F(WalkStreams, AnEmptyChunkIsAChunk) {
  start();
  EXPECT_TRUE(walks.send(request, "vocoder", "frame", {}, false, true));
  EXPECT_TRUE(walks.is_ready(request, node));
  ASSERT_TRUE(walks.pop(request, node));
  std::vector<StreamOffer> offers = {{request, walks.signal("frame"), {}}};
  walks.runtime.speculate(node, node.node, std::span(&request, 1), 10, offers, rows);
  EXPECT_THAT(rows.handles, ElementsAre(request));
  walks.runtime.abandon(rows.id, offers, returned);
  EXPECT_THAT(returned, ElementsAre(0U));
}

}  // namespace
}  // namespace rigel
