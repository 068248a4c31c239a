#pragma once

#include <cstdint>

namespace rigel::kernels {

struct RmsNormParams {
  void* out;            // (T, C) activation type
  const float* x;       // (T, C)
  float* residual;      // (T, C), the memory of x; written only by add_rms_norm
  const void* delta;    // (T, C) activation type; null unless add_rms_norm
  const float* weight;  // (C)
  int num_rows;
  int columns;
  float epsilon;
};

struct HeadRmsNormParams {
  void* heads;          // (T, H, D) activation type
  const float* weight;  // (D)
  std::int64_t token_stride;
  std::int64_t head_stride;
  int num_tokens;
  int num_heads;
  int head_size;
  float epsilon;
};

}  // namespace rigel::kernels
