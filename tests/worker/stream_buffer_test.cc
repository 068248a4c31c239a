#include "worker/stream_buffer.h"

#include "tensor/error.h"
#include "tests/engine/device_tensors.h"
#include "tests/worker/walk_models.h"
#include "worker/stream_buffer_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rigel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::value;
using walk::FixedChunks;
using walk::LeftContext;
using walk::SlidingWindow;

struct Chunk {
  std::vector<std::int32_t> items;
  std::int64_t start = 0;
  std::int64_t context = 0;
  bool is_final = false;
  friend bool operator==(const Chunk&, const Chunk&) = default;
};

std::ostream& operator<<(std::ostream& out, const Chunk& chunk) {
  return out << ::testing::PrintToString(chunk.items) << " at " << chunk.start << ", context "
             << chunk.context << (chunk.is_final ? ", final" : "");
}

class StreamTest : public testing::DeviceTensorTest {
 protected:
  StreamChunk pop_chunk(StreamBuffer& buffer) { return buffer.pop_chunk(stream(), *allocator); }
  static Chunk read(const StreamChunk& chunk) {
    Chunk result{{}, chunk.info.start_offset, chunk.info.context_items, chunk.info.is_final};
    if (chunk.items.defined()) {
      const auto span = chunk.items.host_view().span<std::int32_t>();
      result.items.assign(span.begin(), span.end());
    }
    EXPECT_EQ(static_cast<std::int64_t>(result.items.size()), chunk.info.num_items);
    return result;
  }
  Chunk pop(StreamBuffer& buffer) { return read(pop_chunk(buffer)); }
  std::vector<Chunk> pop_all(StreamBuffer& buffer) {
    std::vector<Chunk> chunks;
    while (buffer.has_chunk_ready() && chunks.size() < 100) {
      chunks.push_back(pop(buffer));
    }
    return chunks;
  }
  static void append(StreamBuffer& buffer, std::int32_t begin, std::int32_t end) {
    for (std::int32_t item = begin; item < end; ++item) {
      buffer.append(value(item));
    }
  }
};

TEST_F(StreamTest, T_GR_9_items_leave_in_the_order_in_which_they_were_registered) {
  StreamBuffer buffer{FixedChunks{2}};
  for (const StreamBuffer::ItemId item : {10, 30, 20}) {
    buffer.register_item(item);
  }
  buffer.put(20, value(3));
  buffer.put(30, value(2));
  EXPECT_FALSE(buffer.has_chunk_ready());
  buffer.signal_done();
  EXPECT_FALSE(buffer.has_chunk_ready()) << "a registered item is still on its way";
  buffer.put(10, value(1));
  EXPECT_THAT(pop_all(buffer), ElementsAre(Chunk{{1, 2}, 0, 0, false}, Chunk{{3}, 2, 0, true}));
}

TEST_F(StreamTest, AnItemComesOnceAndToItsPlace) {
  StreamBuffer buffer{FixedChunks{4}};
  buffer.register_item(1);
  EXPECT_THROW(buffer.register_item(1), CheckError);
  EXPECT_THROW(buffer.put(2, value(1)), CheckError);
  buffer.register_item(2);
  buffer.put(2, value(1));
  EXPECT_THROW(buffer.put(2, value(1)), CheckError);
  buffer.signal_done();
  EXPECT_THROW(buffer.register_item(3), CheckError);
}

TEST_F(StreamTest, T_GR_10_and_B_32_exactly_one_final_chunk_whenever_the_producer_ends) {
  for (std::int32_t num_items = 0; num_items <= 9; ++num_items) {
    for (std::int32_t done_after = 0; done_after <= num_items; ++done_after) {
      for (const walk::ChunkRule& rule :
           {walk::ChunkRule(FixedChunks{3}), walk::ChunkRule(SlidingWindow{4, 2}),
            walk::ChunkRule(LeftContext{3, 1})}) {
        StreamBuffer buffer{rule};
        append(buffer, 0, num_items);
        // The producer ends after some pops: before the first, in between, or behind the last possible one.
        std::vector<Chunk> chunks;
        for (std::int32_t pops = 0; pops < done_after && buffer.has_chunk_ready(); ++pops) {
          chunks.push_back(pop(buffer));
          ASSERT_FALSE(chunks.back().is_final);
        }
        buffer.signal_done();
        for (const Chunk& chunk : pop_all(buffer)) {
          chunks.push_back(chunk);
        }
        EXPECT_EQ(std::ranges::count(chunks, true, &Chunk::is_final), 1);
        ASSERT_FALSE(chunks.empty());
        EXPECT_TRUE(chunks.back().is_final);
        EXPECT_FALSE(buffer.has_chunk_ready());
        std::vector<std::int32_t> fresh;
        for (const Chunk& chunk : chunks) {
          fresh.insert(fresh.end(), chunk.items.begin() + chunk.context, chunk.items.end());
        }
        std::vector<std::int32_t> expected(static_cast<std::size_t>(num_items));
        for (std::int32_t item = 0; item < num_items; ++item) {
          expected[static_cast<std::size_t>(item)] = item;
        }
        EXPECT_EQ(fresh, expected) << "each item is new once";
        EXPECT_EQ(buffer.num_consumed(), num_items);
        EXPECT_EQ(buffer.num_tensors(), 0U);
      }
    }
  }
}

TEST_F(StreamTest, B_32_an_exact_multiple_ends_with_its_last_chunk_or_an_empty_one) {
  StreamBuffer known{FixedChunks{2}};
  append(known, 0, 4);
  known.signal_done();
  EXPECT_THAT(pop_all(known), ElementsAre(Chunk{{0, 1}, 0, 0, false}, Chunk{{2, 3}, 2, 0, true}));
  StreamBuffer late{FixedChunks{2}};
  append(late, 0, 4);
  EXPECT_EQ(pop_all(late).size(), 2U);
  late.signal_done();
  EXPECT_THAT(pop_all(late), ElementsAre(Chunk{{}, 4, 0, true}));
}

TEST_F(StreamTest, SlidingWindowsOverlapAndFlushTheirContext) {
  StreamBuffer buffer{SlidingWindow{4, 2}};
  append(buffer, 0, 6);
  EXPECT_THAT(pop_all(buffer),
              ElementsAre(Chunk{{0, 1, 2, 3}, 0, 0, false}, Chunk{{2, 3, 4, 5}, 2, 2, false}));
  buffer.signal_done();
  EXPECT_THAT(pop_all(buffer), ElementsAre(Chunk{{4, 5}, 4, 2, true})) << "nothing of it is new";
}

TEST_F(StreamTest, LeftContextGrowsTheWindowAfterTheFirst) {
  StreamBuffer buffer{LeftContext{3, 2}};
  append(buffer, 0, 10);
  EXPECT_THAT(pop_all(buffer),
              ElementsAre(Chunk{{0, 1, 2}, 0, 0, false}, Chunk{{1, 2, 3, 4, 5}, 1, 2, false},
                          Chunk{{4, 5, 6, 7, 8}, 4, 2, false}));
  buffer.signal_done();
  EXPECT_THAT(pop_all(buffer), ElementsAre(Chunk{{7, 8, 9}, 7, 2, true}));
}

TEST_F(StreamTest, AContinuingStreamHasNoFinalChunkAndEmptyOnesForEver) {
  StreamBuffer buffer{FixedChunks{2, /*continue_after_producer_done=*/true}};
  append(buffer, 0, 3);
  buffer.signal_done();
  EXPECT_EQ(pop(buffer), (Chunk{{0, 1}, 0, 0, false}));
  EXPECT_EQ(pop(buffer), (Chunk{{2}, 2, 0, false}));
  for (int more = 0; more < 5; ++more) {
    ASSERT_TRUE(buffer.has_chunk_ready());
    EXPECT_EQ(pop(buffer), (Chunk{{}, 3, 0, false}));
  }
}

TEST_F(StreamTest, AChunkKeepsItsLeadingDimension) {
  StreamBuffer buffer{FixedChunks{1}};
  buffer.append(Tensor::copy_of(std::span<const std::int32_t>(std::vector<std::int32_t>{1, 2})));
  const StreamChunk chunk = pop_chunk(buffer);
  ASSERT_EQ(chunk.items.rank(), 2);
  EXPECT_EQ(chunk.items.dim(0), 1);
  EXPECT_EQ(chunk.items.dim(1), 2);
}

TEST_F(StreamTest, AChunkGivenBackIsTheNextAndUnEndsTheStream) {
  StreamBuffer buffer{FixedChunks{2}};
  append(buffer, 0, 3);
  buffer.signal_done();
  StreamChunk first = pop_chunk(buffer);
  StreamChunk last = pop_chunk(buffer);
  EXPECT_TRUE(last.info.is_final);
  EXPECT_FALSE(buffer.has_chunk_ready());
  EXPECT_EQ(buffer.num_consumed(), 3);
  buffer.give_back(std::move(last));
  buffer.give_back(std::move(first));
  EXPECT_EQ(buffer.num_consumed(), 0);
  EXPECT_THAT(pop_all(buffer), ElementsAre(Chunk{{0, 1}, 0, 0, false}, Chunk{{2}, 2, 0, true}));
}

TEST_F(StreamTest, PrimedItemsCountAsConsumed) {
  StreamBuffer buffer{LeftContext{2, 1}};
  buffer.prime_context(5);
  EXPECT_EQ(buffer.num_consumed(), 5);
  append(buffer, 0, 2);
  EXPECT_EQ(pop(buffer), (Chunk{{0, 1}, 5, 0, false}));
  EXPECT_THROW(buffer.prime_context(1), CheckError);
}

/// Two finite streams into one node, an endless one into it, and a finite one into another node of its partition.
walk::Program streams_into_two_nodes() {
  const auto streamed = [](const char* signal, const char* to) {
    return walk::Edge{
        .signal = signal, .next_node = to, .is_streaming = true, .target_partition = "sink"};
  };
  const walk::Node source{.name = "source",
                          .inputs = {"in"},
                          .outputs = {streamed("a", "mixer"), streamed("b", "mixer"),
                                      streamed("beat", "mixer"), streamed("c", "other")}};
  const walk::Node mixer{.name = "mixer",
                         .inputs = {"a", "b", "beat"},
                         .outputs = {},
                         .streaming_inputs = {"a", "b", "beat"}};
  const walk::Node other{
      .name = "other", .inputs = {"c"}, .outputs = {}, .streaming_inputs = {"c"}};
  return walk::compile(
      {.walks = {{"produce", source}, {"consume", walk::Parallel{{mixer, other}}}},
       .partitions = {{.name = "source", .walks = {"produce"}, .initial_walk = "produce"},
                      {.name = "sink",
                       .walks = {"consume"},
                       .initial_walk = "consume",
                       .producer_partitions = {"source"}}},
       .connections = {{"source", "sink", "a", FixedChunks{2}},
                       {"source", "sink", "b", FixedChunks{2}},
                       {"source", "sink", "beat", FixedChunks{1, true}},
                       {"source", "sink", "c", FixedChunks{1}}}},
      {});
}

class StreamTableTest : public StreamTest {
 protected:
  [[nodiscard]] walk::StreamId id_of(const std::string& signal) const {
    for (std::size_t index = 0; index < program.streams.size(); ++index) {
      if (program.names.signals.name(program.streams[index].signal) == signal) {
        return static_cast<walk::StreamId>(index);
      }
    }
    throw CheckError("no such stream");
  }
  [[nodiscard]] StreamBufferTable::Ends ends(const char* node) const {
    return table.ends(request, *program.names.nodes.find(node));
  }
  StreamChunk take(const char* signal) {
    return table.pop_chunk(request, id_of(signal), stream(), *allocator);
  }

  const walk::Program program = streams_into_two_nodes();
  StreamBufferTable table{program, 2};
  const RequestHandle request{1, 4};
};

TEST_F(StreamTableTest, T_GR_11_a_node_ends_with_its_finite_streams_and_a_partition_with_all) {
  table.open(request);
  EXPECT_TRUE(table.streams_possible());
  table.find(request, id_of("a"))->append(value(1));
  table.producer_done(request, *program.names.partitions.find("source"));
  EXPECT_FALSE(ends("mixer").node);
  EXPECT_TRUE(take("a").info.is_final);
  EXPECT_FALSE(ends("mixer").node);
  EXPECT_FALSE(take("beat").info.is_final);
  EXPECT_TRUE(take("b").info.is_final);
  EXPECT_TRUE(ends("mixer").node) << "the endless one holds nothing back";
  EXPECT_FALSE(ends("mixer").partition);
  EXPECT_FALSE(ends("other").node);
  EXPECT_TRUE(take("c").info.is_final);
  EXPECT_TRUE(ends("other").node);
  EXPECT_TRUE(ends("mixer").partition);
  table.close(request);
  EXPECT_TRUE(ends("mixer").partition) << "nothing more comes for an unknown request";
}

TEST_F(StreamTableTest, B_34_a_final_chunk_given_back_takes_the_end_back) {
  table.open(request);
  table.producer_done(request, *program.names.partitions.find("source"));
  StreamChunk last = take("c");
  EXPECT_TRUE(ends("other").node);
  table.give_back(request, id_of("c"), std::move(last));
  EXPECT_FALSE(ends("other").node);
  EXPECT_TRUE(take("c").info.is_final);
  EXPECT_TRUE(ends("other").node);
}

TEST_F(StreamTableTest, OpeningTwiceKeepsTheFirstBuffers) {
  table.open(request);
  table.find(request, id_of("a"))->append(value(1));
  table.open(request);
  EXPECT_EQ(table.find(request, id_of("a"))->num_tensors(), 1U);
  EXPECT_EQ(table.num_tensors(), 1U);
  EXPECT_EQ(table.find({1, 5}, id_of("a")), nullptr);
  EXPECT_THROW(table.open({1, 5}), CheckError);
  table.close(request);
  EXPECT_EQ(table.num_tensors(), 0U);
}

}  // namespace
}  // namespace rigel
