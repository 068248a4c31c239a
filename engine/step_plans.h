#pragma once

#include "engine/step.h"
#include "tensor/view.h"

#include <array>
#include <cstdint>
#include <span>

namespace rigel {

// What a resource's plan gives to the forward: device addresses and counts, immutable once made.

/// A stream that begins this step with tokens that it did not compute: a cached prefix.
struct StreamStart {
  RequestHandle handle;
  LabelId label{};
  std::int32_t length = 0;
};

/// A stream is addressed by its row in the page table. Columns by token (T) of the KV segments; -1 for padding.
struct KvPlan {
  ConstDeviceView page_updates;   // (n, 3) i32 {table row, index, page}
  ConstDeviceView token_streams;  // (T) i32: table row of the token's stream
  ConstDeviceView token_indices;  // (T) i32: the token's place in its stream
  std::span<const std::int32_t>
      host_token_indices;               // the same on the host, until the staging is reused
  std::span<const StreamStart> starts;  // valid until the cache plans again
};

struct PositionPlan {
  ConstDeviceView positions;   // (T) i32
  ConstDeviceView token_rows;  // (T) i32
};

/// Leading tokens, one a lane, are decode's; the rest is cut into tiles of one stream.
struct AttentionPlan {
  /// One label's part, for a forward that attends label by label.
  struct Label {
    LabelId label{};
    std::int64_t first_token = 0;
    std::int64_t num_decode_tokens = 0;  // from first_token on
    ConstDeviceView prefill_tiles;       // (n, 2) i32
  };

  std::int64_t num_decode_tokens = 0;
  ConstDeviceView prefill_tiles;  // (n, 2) i32 {first token, count}
  /// In a packed capture, whose number of decode lanes varies: (num_decode_tokens) i32, the page table's row of each that is
  /// one, -1 for tokens that a tile has or nobody. Give it to decode attention as token rows, in front of the tiles.
  ConstDeviceView decode_rows;
  bool causal = true;
  /// (T) i32: the last key that each token sees, where the attention is not causal: give it to the kernel as positions.
  ConstDeviceView last_keys;
  std::array<Label, kMaxLabels> labels;
  std::int32_t num_labels = 0;  // 0 where the tokens do not lie label after label
};

/// Keys and values that a request wrote once, and who reads them. Query columns are by token of the step's segments.
struct CrossAttentionPlan {
  KvPlan writes;
  ConstDeviceView query_streams;  // (T) i32: table row, -1 for padding
  ConstDeviceView last_keys;      // (T) i32: every query sees all keys; -1 where there are none
};

struct SlotStatePlan {
  ConstDeviceView slots;  // (segments) i32: index into the pool; padding has the scratch slot
};

}  // namespace rigel
