#pragma once

#include "engine/contract/input_metadata.h"
#include "engine/contract/signals.h"
#include "tensor/allocator.h"
#include "tensor/stream.h"
#include "worker/chunk_policy.h"

#include <cstdint>
#include <deque>
#include <vector>

namespace rigel {

/// Items of one stream that its consumer takes in one step.
struct StreamChunk {
  Tensor items;  // (n, item...); undefined: none
  StreamChunkInfo info;

  /// As a node's input: no tensor where there are no items.
  [[nodiscard]] TensorList tensors() const {
    return items.defined() ? TensorList{items} : TensorList{};
  }
};

/// One request's items of one stream on the consumer's side. Items may arrive out of order, and leave in the order in which
/// they were registered, cut by the stream's policy. A finite stream gives exactly one final chunk, which is empty where its
/// last item was gone before the producer was done.
///
/// Thread: worker. Cost: stacking a chunk of several items is a copy of each.
class StreamBuffer {
 public:
  using ItemId = std::uint64_t;

  explicit StreamBuffer(const walk::ChunkRule& rule) : policy_(rule) {}

  /// Fixes an item's place before its tensor is here.
  void register_item(ItemId item);
  /// The tensor of a registered item.
  void put(ItemId item, Tensor tensor);
  /// Both at once.
  void append(Tensor tensor);
  /// Nothing is registered from now on.
  void signal_done() { producer_done_ = true; }
  /// The consumer has had `num_items` items already. Before the first item.
  void prime_context(std::int64_t num_items);

  [[nodiscard]] bool has_chunk_ready() const;
  /// The next chunk: what was given back first. Requires has_chunk_ready. Device items are stacked in the order of `stream`.
  [[nodiscard]] StreamChunk pop_chunk(StreamRef stream, TensorAllocator& allocator);
  /// A popped chunk that no step has used; it is the next to be popped. Several go back newest first.
  void give_back(StreamChunk chunk);

  /// Items that chunks have taken, each once, and primed ones.
  [[nodiscard]] std::int64_t num_consumed() const { return num_consumed_; }
  [[nodiscard]] std::size_t num_tensors() const;

 private:
  struct Pending {
    ItemId item = 0;
    Tensor tensor;  // undefined: not here yet
  };

  void release_arrived();
  [[nodiscard]] std::int64_t num_buffered() const {
    return static_cast<std::int64_t>(items_.size());
  }
  /// The producer is done and all that it registered is here.
  [[nodiscard]] bool all_read() const { return producer_done_ && pending_.empty(); }

  ChunkPolicy policy_;
  std::deque<Pending> pending_;  // registered, not yet in the buffer
  std::deque<Tensor> items_;
  std::deque<StreamChunk> waiting_;         // given back
  ItemId next_own_item_ = ItemId{1} << 63;  // of append, apart from callers' ids
  std::int64_t start_offset_ = 0;           // of the first buffered item
  std::int64_t num_consumed_ = 0;
  bool producer_done_ = false;
  bool gave_final_ = false;
};

}  // namespace rigel
