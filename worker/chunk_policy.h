#pragma once

#include "model/walk/definition.h"

#include <cstdint>

namespace rigel {

/// Which of a stream's buffered items make the next chunk. Counts only; the items are StreamBuffer's.
class ChunkPolicy {
 public:
  /// The leading `num_items` buffered items are the chunk, the first `context_items` of them old; then `advance` items leave.
  struct Cut {
    std::int64_t num_items = 0;
    std::int64_t context_items = 0;
    std::int64_t advance = 0;
  };

  explicit ChunkPolicy(const walk::ChunkRule& rule) : rule_(rule) {}

  /// The next whole chunk; its num_items tells how many items must be buffered for it.
  [[nodiscard]] Cut next() const;
  /// What is left when nothing follows: all of it, retained items as context.
  [[nodiscard]] Cut flush(std::int64_t num_buffered) const {
    return {num_buffered, num_retained_, num_buffered};
  }
  /// A chunk was taken: where chunks overlap, its last items stay.
  void took(const Cut& cut) { num_retained_ = cut.num_items - cut.advance; }

  /// Whether the stream has no end for its consumer: empty chunks follow the last item, and none is final.
  [[nodiscard]] bool continues_after_producer_done() const;

 private:
  walk::ChunkRule rule_;
  std::int64_t num_retained_ = 0;  // leading buffered items that the last chunk held already
};

}  // namespace rigel
