#pragma once

#include <cstdint>

namespace rigel::kernels {

struct RotaryAnglesParams {
  float* angles;                     // (T, num_pairs, 2): cos, sin
  const std::int32_t* positions;     // (T)
  const float* inverse_frequencies;  // (num_pairs)
  std::int32_t num_tokens;
  std::int32_t num_pairs;
  float scale;
};

/// Rotation of the query heads, and of keys on their way into the cache. Without a cache (num_kv_heads 0) only the first.
struct RotaryParams {
  void* qkv;                       // (T, H + 2 G, D) T, rows of qkv_stride elements
  const float* angles;             // (T, R / 2, 2)
  const std::int32_t* token_rows;  // (T), or null: no padding
  const std::int32_t* positions;   // (T)
  const std::int32_t* page_table;  // (R, page_table_stride)
  void* kv;                        // (P, 2, G, S, D) T
  std::int64_t qkv_stride;
  std::int32_t page_table_stride;
  std::int32_t num_tokens;
  std::int32_t num_heads;     // H
  std::int32_t num_kv_heads;  // G
  std::int32_t head_size;     // D
  std::int32_t rotary_dim;    // R, even
  std::int32_t page_shift;    // S = 1 << page_shift
};

}  // namespace rigel::kernels
