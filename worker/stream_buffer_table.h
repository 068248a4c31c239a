#pragma once

#include "engine/contract/ids.h"
#include "model/walk/program.h"
#include "worker/stream_buffer.h"

#include <cstdint>
#include <vector>

namespace rigel {

/// The stream buffers of all requests, and which of their streams have ended: a stream has once its final chunk is in a node's
/// hands. Thread: worker.
class StreamBufferTable {
 public:
  /// What has ended with the streams consumed so far.
  struct Ends {
    bool node =
        false;  // every finite stream into the node: it flushes, and its innermost loop is stopped
    bool partition = false;  // every finite stream into the node's partition
  };

  /// `program` outlives the table.
  StreamBufferTable(const walk::Program& program, std::int32_t num_rows);

  /// Makes a request's buffers. Idempotent: each partition of the request opens them, and the first ones stay.
  void open(RequestHandle handle);
  void close(RequestHandle handle);

  /// False: no request has streams, and nobody needs to poll.
  [[nodiscard]] bool streams_possible() const { return !program_.streams.empty(); }
  /// Null where the request is not open.
  [[nodiscard]] StreamBuffer* find(RequestHandle handle, walk::StreamId stream);

  /// Every stream out of a partition has ended on its producer's side.
  void producer_done(RequestHandle handle, PartitionId producer);
  [[nodiscard]] StreamChunk pop_chunk(RequestHandle handle, walk::StreamId stream, StreamRef copies,
                                      TensorAllocator& allocator);
  /// An unused chunk goes back; where it was the final one the stream has not ended after all. Take it out of the node's slot
  /// first: a chunk is never in both.
  void give_back(RequestHandle handle, walk::StreamId stream, StreamChunk chunk);

  /// Both are true of an unknown request: nothing more comes for it.
  [[nodiscard]] Ends ends(RequestHandle handle, NodeId consumer) const;

  [[nodiscard]] std::size_t num_tensors() const;

 private:
  using StreamMask = std::uint64_t;
  struct Row {
    RequestHandle handle;
    StreamMask ended = 0;
    std::vector<StreamBuffer> buffers;  // by StreamId
  };

  [[nodiscard]] Row* row_of(RequestHandle handle);

  const walk::Program& program_;
  std::vector<Row> rows_;
  std::vector<StreamMask> finite_into_node_;       // by NodeId
  std::vector<StreamMask> finite_into_partition_;  // of the node, by NodeId
};

}  // namespace rigel
