#pragma once

#include "engine/contract/request_info.h"
#include "worker/token_rows.h"

#include <cstdint>
#include <vector>

namespace rigel {

/// What one node of a composite model knows of one request.
struct NodeRow {
  RequestHandle handle;  // padding: nobody's
  /// The node's own copy of the request's facts: lengths are those of the node's own tokens.
  RequestInfo info;
  std::uint64_t number = 0;  // order of arrival

  // Of a node with a KV cache.
  enum class Phase : std::uint8_t {
    kWaiting,  // has no pages yet
    kRunning,
    kPreempted,  // lost its pages; starts over when there is room
    kOffloaded,  // its pages are on the host; goes on when there is room
  };
  Phase phase = Phase::kWaiting;
  std::int32_t num_stored = 0;  // tokens whose pages it lost
  bool has_run = false;         // a step of the node was launched with it, since it last began

  // Of a node whose rows are token sequences.
  TokenRows tokens = {};  // that it was given
  bool has_current =
      false;  // the last of them is what the node's next step, or the rest of its prompt, brings
  std::vector<std::int32_t> sampled = {};  // that it has sampled, as far as the host knows them
  std::size_t num_replayed = 0;            // of those: that stand among `tokens`, too
  bool has_mixed_input =
      false;  // it was given more after it had sampled: the order cannot be told any more

  /// Whether the next step runs tokens that it was given, and not just the one that it sampled last.
  [[nodiscard]] bool brings_tokens() const { return tokens.num_left() > 0; }
  /// Whether all that its cache holds can be computed again.
  [[nodiscard]] bool can_restart() const {
    return !has_run || (tokens.num_tokens() > 0 && !has_mixed_input &&
                        sampled.size() == static_cast<std::size_t>(info.num_generated) &&
                        (has_current || sampled.size() > num_replayed));
  }
};

}  // namespace rigel
