#pragma once

#include <cstdint>

namespace rigel::kernels {

/// Keys of one chunk. Chunks begin at absolute multiples of it, in every phase: a query's bits depend on its history alone.
inline constexpr int kAttentionChunk = 256;

/// Most queries of a prefill tile.
inline constexpr int kPrefillTile = 16;

inline constexpr int kMaxHeadSize = 256;
inline constexpr int kMaxHeadsPerKvHead = 16;

/// What both phases of attention share; see attention.h for the meaning of each tensor.
struct AttentionParams {
  const void* q;                   // (T, H * D) T, rows of q_stride elements
  void* out;                       // (T, H, D) T, contiguous
  const void* kv;                  // (P, 2, G, S, D) T
  const std::int32_t* page_table;  // (R, page_table_stride)
  const std::int32_t* token_rows;  // (T)
  const std::int32_t* positions;   // (T)
  std::int64_t q_stride;
  std::int32_t page_table_stride;
  std::int32_t num_heads;     // H
  std::int32_t num_kv_heads;  // G
  std::int32_t head_size;     // D
  std::int32_t page_shift;    // S = 1 << page_shift
  std::int32_t window;        // keys a query sees; 0 = all
  float scale;
  float soft_cap;  // 0 = none
  bool is_bf16;    // T
};

/// Partial results of decode attention, addressed by slot: one slot is one (token, chunk).
struct DecodeWorkspace {
  float* values;              // (num_slots, H, padded_head_size)
  float* stats;               // (num_slots, H, 2): largest score and sum of exponentials
  std::int32_t* slot_chunks;  // (num_slots, 2): {token, chunk}
  std::int32_t*
      first_slots;  // (num_tokens): the token's first slot, or kWholeToken, or kPaddingToken
  std::int32_t* used_slots;  // (1)
  std::int32_t num_slots;
};

/// A token whose chunks are folded by whoever computes them: it has one chunk, or the workspace has no room for more.
inline constexpr std::int32_t kWholeToken = -1;
inline constexpr std::int32_t kPaddingToken = -2;

struct AttendDecodeParams {
  AttentionParams attention;
  DecodeWorkspace workspace;
  std::int32_t first_token;
  std::int32_t num_tokens;
};

struct AttendPrefillParams {
  AttentionParams attention;
  const std::int32_t* tiles;  // (num_tiles, 2): {first token, count}
  std::int32_t num_tiles;
};

/// Floats between the heads of a partial result.
constexpr std::int32_t padded_head_size(std::int32_t head_size) {
  return (head_size + 15) / 16 * 16;
}

/// First key that a query at `position` sees.
constexpr std::int32_t first_visible_key(std::int32_t position, std::int32_t window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}

/// Keys of a chunk that a query sees, counted from the start of the chunk. Empty where end <= begin.
struct KeyRange {
  std::int32_t begin;
  std::int32_t end;
};

/// What a query at `position` sees of chunk `chunk`; nothing at all if the position is negative.
constexpr KeyRange visible_keys(std::int32_t position, std::int32_t window, std::int32_t chunk) {
  const std::int32_t start = chunk * kAttentionChunk;
  const std::int32_t begin = first_visible_key(position, window) - start;
  const std::int32_t end = position + 1 - start;
  return KeyRange{begin < 0 ? 0 : begin, end > kAttentionChunk ? kAttentionChunk : end};
}

/// Chunks [begin, end) that a query at `position` >= 0 sees something of.
constexpr KeyRange visible_chunks(std::int32_t position, std::int32_t window) {
  return KeyRange{first_visible_key(position, window) / kAttentionChunk,
                  position / kAttentionChunk + 1};
}

}  // namespace rigel::kernels
