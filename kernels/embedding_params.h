#pragma once

#include <cstdint>

namespace rigel::kernels {

struct SelectTokensParams {
  std::int32_t* out_ids;           // (T)
  const std::int32_t* staged_ids;  // (T)
  const std::int32_t* token_rows;  // (T)
  const std::int32_t* last_token;  // (R)
  int num_tokens;
};

struct EmbedParams {
  float* out;               // (T, C)
  const std::int32_t* ids;  // (T)
  const void* table;        // (V, C) activation type
  int num_tokens;
  int columns;
  int vocabulary;
  float scale;
};

}  // namespace rigel::kernels
