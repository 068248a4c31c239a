#pragma once

#include <cstdint>

namespace rigel::kernels {

struct SampleParams {
  const float* logits;            // (S, V)
  const std::int32_t* rows;       // (S)
  const std::int32_t* positions;  // (S)
  const float* temperature;       // (R)
  const std::int32_t* top_k;      // (R)
  const float* top_p;             // (R)
  const float* min_p;             // (R)
  const std::int64_t* seeds;      // (R)
  std::int32_t* tokens;           // (S)
  std::int32_t* flags;            // (S)
  std::int32_t* num_kept;         // (S) or null
  int num_lanes;
  int vocabulary;
  std::uint32_t sampler_id;
};

struct ArgmaxParams {
  const float* logits;   // (S, V)
  std::int32_t* tokens;  // (S)
  int num_lanes;
  int vocabulary;
};

struct PublishParams {
  std::int32_t* last_token;     // (R)
  const std::int32_t* tokens;   // (S)
  const std::int32_t* rows;     // (S)
  const std::int32_t* publish;  // (S)
  int num_lanes;
};

}  // namespace rigel::kernels
