#include "engine/executing_batch.h"

#include "engine/padded_batch.h"

#include <gtest/gtest.h>

namespace rigel {
namespace {

constexpr SignalId kChunk{3};
constexpr LoopId kInnerLoop{1};
constexpr LoopId kOuterLoop{2};

RequestInfo lane_info(std::int32_t row) {
  RequestInfo info;
  info.handle = {row, 1};
  return info;
}

InputMetadata chunk_metadata() {
  InputMetadata metadata;
  metadata.loop_counters.set(kOuterLoop, 7);
  metadata.stream_chunks.emplace_back(kChunk, StreamChunkInfo{.num_items = 5});
  return metadata;
}

TEST(ExecutingBatch, AStepHasNothingOfTheStepThatUsedItsColumnsBefore) {
  const RequestInfo first = lane_info(0);
  const RequestInfo second = lane_info(1);
  const NodeInputs row;
  ExecutingBatch batch;
  batch.add(first.handle, first, chunk_metadata(), row);
  batch.add(second.handle, second, chunk_metadata(), LaneSource{.start = 4, .end = 9});
  batch.clear();
  EXPECT_TRUE(batch.empty());
  EXPECT_TRUE(batch.columns().metadata.empty());

  batch.add(second.handle, second, row).set(kInnerLoop, 2);
  ASSERT_EQ(batch.size(), 1u);
  EXPECT_EQ(batch.handles()[0], second.handle);
  EXPECT_EQ(batch.infos()[0], &second);
  EXPECT_EQ(batch.inputs()[0], &row);
  const InputMetadata& metadata = batch.metadata()[0];
  EXPECT_EQ(metadata.loop_counters.size(), 1);
  EXPECT_EQ(metadata.loop_counters.count(kInnerLoop), 2);
  EXPECT_TRUE(metadata.stream_chunks.empty());
  batch.add(first.handle, first, InputMetadata(), LaneSource{.start = 1});
  EXPECT_EQ(batch.inputs()[1], nullptr);
  EXPECT_EQ(batch.sources()[1].start, 1);
  EXPECT_EQ(batch.sources()[1].end, 0);
}

TEST(ExecutingBatch, LanesThatLeaveTakeEveryColumnWithThem) {
  const RequestInfo first = lane_info(0);
  const RequestInfo second = lane_info(1);
  const NodeInputs row;
  ExecutingBatch batch;
  batch.add(first.handle, first, row).set(kInnerLoop, 1);
  batch.add(second.handle, second, chunk_metadata(), row);
  batch.drop_if([](std::size_t lane) { return lane == 0; });
  ASSERT_EQ(batch.size(), 1u);
  EXPECT_EQ(batch.infos()[0], &second);
  EXPECT_EQ(batch.metadata()[0].loop_counters.count(kOuterLoop), 7);
  EXPECT_NE(batch.metadata()[0].stream_chunk(kChunk), nullptr);
}

TEST(ExecutingBatch, DecodeLanesInBulkHaveTheirLoopAlone) {
  const std::vector<RequestInfo> infos{lane_info(0), lane_info(1), lane_info(2), lane_info(3)};
  const NodeInputs row;
  ExecutingBatch batch;
  // What stood there before: chunks and another loop, two loops, the same loop.
  batch.add(infos[0].handle, infos[0], chunk_metadata(), row);
  LoopCounters& two = batch.add(infos[1].handle, infos[1], row);
  two.set(kInnerLoop, 3);
  two.set(kOuterLoop, 4);
  batch.add(infos[2].handle, infos[2], row).set(kInnerLoop, 8);
  batch.clear();

  const std::vector<RequestHandle> handles{infos[1].handle, infos[2].handle, infos[3].handle};
  const std::vector<const RequestInfo*> facts{&infos[1], &infos[2], &infos[3]};
  const std::vector<std::int32_t> iterations{5, 0, 9};
  batch.add(infos[0].handle, infos[0], row).set(kInnerLoop, 1);
  batch.add(handles, facts, row, kInnerLoop, iterations);
  ASSERT_EQ(batch.size(), 4U);
  const std::vector<std::int32_t> expected{1, 5, 0, 9};
  for (std::size_t lane = 0; lane < batch.size(); ++lane) {
    EXPECT_EQ(batch.handles()[lane], infos[lane].handle);
    EXPECT_EQ(batch.infos()[lane], &infos[lane]);
    EXPECT_EQ(batch.inputs()[lane], &row);
    const InputMetadata& metadata = batch.metadata()[lane];
    EXPECT_EQ(metadata.loop_counters.count(kInnerLoop), expected[lane]);
    EXPECT_EQ(metadata.loop_counters.size(), 1);
    EXPECT_TRUE(metadata.stream_chunks.empty());
  }
}

TEST(PaddedBatch, PaddingHasNothingOfTheLanesThatStoodThereBefore) {
  const RequestInfo info = lane_info(0);
  const NodeInputs row;
  const NodeInputs padding_row;
  ExecutingBatch batch;
  batch.add(info.handle, info, chunk_metadata(), row);
  batch.add(info.handle, info, chunk_metadata(), row);
  PaddedBatch padded;
  const BatchColumns three = padded.pad(batch.columns(), 3, padding_row);
  EXPECT_NE(three.metadata[1].stream_chunk(kChunk), nullptr);
  batch.drop_if([](std::size_t lane) { return lane == 1; });

  const BatchColumns two = padded.pad(batch.columns(), 2, padding_row);
  EXPECT_EQ(two.handles[0], info.handle);
  EXPECT_EQ(two.metadata[0].loop_counters.count(kOuterLoop), 7);
  EXPECT_TRUE(two.handles[1].is_padding());
  EXPECT_EQ(two.inputs[1], &padding_row);
  EXPECT_EQ(two.metadata[1].loop_counters.size(), 0);
  EXPECT_EQ(two.metadata[1].stream_chunk(kChunk), nullptr);
}

TEST(PaddedBatch, AFullBatchStaysWhereItIs) {
  const RequestInfo info = lane_info(0);
  const NodeInputs row;
  ExecutingBatch batch;
  batch.add(info.handle, info, row).set(kInnerLoop, 1);
  PaddedBatch padded;
  const BatchColumns columns = padded.pad(batch.columns(), 1, row);
  EXPECT_EQ(columns.metadata.data(), batch.metadata().data());
}

}  // namespace
}  // namespace rigel
