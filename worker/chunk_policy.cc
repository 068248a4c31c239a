#include "worker/chunk_policy.h"

namespace rigel {

namespace {

struct NextCut {
  std::int64_t num_retained;

  ChunkPolicy::Cut operator()(const walk::FixedChunks& rule) const {
    return {rule.num_items, 0, rule.num_items};
  }
  ChunkPolicy::Cut operator()(const walk::SlidingWindow& rule) const {
    return {rule.window, num_retained, rule.stride};
  }
  ChunkPolicy::Cut operator()(const walk::LeftContext& rule) const {
    const std::int64_t num_items = rule.chunk + num_retained;
    return {num_items, num_retained, num_items - rule.left};
  }
};

}  // namespace

ChunkPolicy::Cut ChunkPolicy::next() const {
  return std::visit(NextCut{num_retained_}, rule_);
}

bool ChunkPolicy::continues_after_producer_done() const {
  const auto* fixed = std::get_if<walk::FixedChunks>(&rule_);
  return fixed != nullptr && fixed->continue_after_producer_done;
}

}  // namespace rigel
