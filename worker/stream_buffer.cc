#include "worker/stream_buffer.h"

#include "engine/contract/tensor_copies.h"
#include "tensor/error.h"

#include <algorithm>
#include <utility>

namespace rigel {

namespace {

/// Items as one tensor with a leading dimension, however many they are.
Tensor stacked(std::span<const Tensor> items, StreamRef stream, TensorAllocator& allocator) {
  if (items.empty()) {
    return {};
  }
  return stack_of(items, stream, allocator);
}

}  // namespace

void StreamBuffer::register_item(ItemId item) {
  RIGEL_CHECK(!producer_done_, "item {} is registered on a stream whose producer is done", item);
  RIGEL_CHECK(std::ranges::find(pending_, item, &Pending::item) == pending_.end(),
              "item {} is registered twice", item);
  pending_.push_back({item, {}});
}

void StreamBuffer::put(ItemId item, Tensor tensor) {
  const auto place = std::ranges::find(pending_, item, &Pending::item);
  RIGEL_CHECK(place != pending_.end(), "item {} is not registered", item);
  RIGEL_CHECK(tensor.defined() && !place->tensor.defined(), "item {} comes twice or empty", item);
  place->tensor = std::move(tensor);
  release_arrived();
}

void StreamBuffer::append(Tensor tensor) {
  register_item(next_own_item_);
  put(next_own_item_, std::move(tensor));
  ++next_own_item_;
}

void StreamBuffer::release_arrived() {
  while (!pending_.empty() && pending_.front().tensor.defined()) {
    items_.push_back(std::move(pending_.front().tensor));
    pending_.pop_front();
  }
}

void StreamBuffer::prime_context(std::int64_t num_items) {
  RIGEL_CHECK(num_items >= 0, "num_items is {}", num_items);
  RIGEL_CHECK(start_offset_ == 0 && num_consumed_ == 0 && items_.empty(),
              "a stream is primed before its first item");
  start_offset_ = num_items;
  num_consumed_ = num_items;
}

bool StreamBuffer::has_chunk_ready() const {
  if (!waiting_.empty()) {
    return true;
  }
  if (num_buffered() >= policy_.next().num_items) {
    return true;
  }
  return all_read() && !gave_final_;
}

StreamChunk StreamBuffer::pop_chunk(StreamRef stream, TensorAllocator& allocator) {
  RIGEL_CHECK(has_chunk_ready(), "the stream has no chunk");
  StreamChunk chunk;
  if (!waiting_.empty()) {
    chunk = std::move(waiting_.front());
    waiting_.pop_front();
  } else {
    const ChunkPolicy::Cut whole = policy_.next();
    const ChunkPolicy::Cut cut =
        num_buffered() >= whole.num_items ? whole : policy_.flush(num_buffered());
    const std::vector<Tensor> taken(items_.begin(), items_.begin() + cut.num_items);
    chunk.items = stacked(taken, stream, allocator);
    items_.erase(items_.begin(), items_.begin() + cut.advance);
    policy_.took(cut);
    chunk.info = {
        .start_offset = start_offset_,
        .context_items = cut.context_items,
        .num_items = cut.num_items,
        .is_final = all_read() && items_.empty() && !policy_.continues_after_producer_done()};
    start_offset_ += cut.advance;
  }
  num_consumed_ += chunk.info.num_items - chunk.info.context_items;
  gave_final_ = gave_final_ || chunk.info.is_final;
  return chunk;
}

void StreamBuffer::give_back(StreamChunk chunk) {
  num_consumed_ -= chunk.info.num_items - chunk.info.context_items;
  if (chunk.info.is_final) {
    gave_final_ = false;
  }
  waiting_.push_front(std::move(chunk));
}

std::size_t StreamBuffer::num_tensors() const {
  const auto arrived = std::ranges::count_if(
      pending_, [](const Pending& pending) { return pending.tensor.defined(); });
  const auto waiting =
      std::ranges::count_if(waiting_, [](const StreamChunk& c) { return c.items.defined(); });
  return items_.size() + static_cast<std::size_t>(arrived + waiting);
}

}  // namespace rigel
