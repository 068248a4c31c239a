// Who has pages of a node's KV cache.

#include "worker/node_runner.h"

#include <algorithm>

namespace rigel {

PageHolder NodeRunner::holder_of(const NodeRow* row) {
  return {.handle = row->handle,
          .num_tokens = static_cast<std::int32_t>(row->tokens.num_tokens()),
          .is_active = row->phase == NodeRow::Phase::kRunning,
          .grows = row->brings_tokens()};
}

/// Whether the request may have pages of this node: nobody overtakes one that waits for its own.
bool NodeRunner::begin(NodeRow& row) {
  if (kv_cache_ == nullptr || row.phase == NodeRow::Phase::kRunning) {
    return true;
  }
  const auto num_tokens = static_cast<std::int32_t>(row.tokens.num_tokens());
  if (!parked_.empty() || !pages_suffice(*kv_cache_, num_tokens, resident_, holder_of)) {
    return false;
  }
  row.phase = NodeRow::Phase::kRunning;
  resident_.push_back(&row);
  return true;
}

void NodeRunner::resume() {
  for (NodeRow* const row : resident_) {
    if (row->phase == NodeRow::Phase::kRunning) {
      continue;
    }
    const auto num_tokens = std::max(holder_of(row).num_tokens, row->num_stored);
    if (!pages_suffice(*kv_cache_, num_tokens, resident_, holder_of) ||
        (row->phase == NodeRow::Phase::kOffloaded && !engine_->reload_request(row->handle))) {
      return;
    }
    row->phase = NodeRow::Phase::kRunning;
    parked_.erase(row->handle.row);
  }
}

bool NodeRunner::make_room(NodeStep& step) {
  const auto newest = newest_active(resident_, holder_of);
  if (newest == resident_.end()) {
    return false;
  }
  NodeRow& victim = **newest;
  victim.num_stored = kv_cache_->stored_length(victim.handle);
  ++counts_.num_preemptions;
  if (engine_->offload_request(victim.handle)) {
    ++counts_.num_offloads;
    victim.phase = NodeRow::Phase::kOffloaded;
  } else if (victim.can_restart()) {
    engine_->restart_request(victim.handle);
    victim.tokens.restart();
    victim.has_run = false;
    victim.phase = NodeRow::Phase::kPreempted;
  } else {
    step.failed.push_back({victim.handle,
                           "the node ran out of pages; there is no room for this request's on the "
                           "host, and it cannot be computed again"});
    return true;
  }
  parked_.insert(victim.handle.row);
  return true;
}

NodeCounts NodeRunner::counts() const {
  NodeCounts counts = counts_;
  if (kv_cache_ != nullptr) {
    counts.pages_total = kv_cache_->arena().capacity();
    counts.pages_in_use = counts.pages_total - kv_cache_->num_available();
  }
  return counts;
}

}  // namespace rigel
