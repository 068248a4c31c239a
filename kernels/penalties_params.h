#pragma once

#include <cmath>
#include <cstdint>

namespace rigel::kernels {

struct CountParams {
  std::int32_t* counts;         // (slots, V)
  const std::int32_t* slots;    // count_prompt: (n); count_tokens: (R), by row
  const std::int32_t* rows;     // (S); count_tokens only
  const std::int32_t* tokens;   // (n) or (S)
  const std::int32_t* publish;  // (S); count_tokens only
  int num_entries;
  int vocabulary;
};

struct PenaltyParams {
  float* logits;               // (S, V)
  const std::int32_t* counts;  // (slots, V)
  const std::int32_t* rows;    // (S)
  const std::int32_t* slots;   // (R)
  const float* repetition;     // (R)
  const float* presence;       // (R)
  const float* frequency;      // (R)
  int num_lanes;
  int vocabulary;
};

/// One token's logit after the penalties; `seen` is its entry of the pool. The same bits on every device.
static constexpr float penalised(float logit, std::int32_t seen, float repetition, float presence,
                                 float frequency) {
  const std::int32_t generated = seen & ((1 << 30) - 1);
  if (repetition != 1.0f) {
    logit = logit > 0.0f ? logit / repetition : logit * repetition;
  }
  if (generated > 0) {
    logit = fmaf(-frequency, static_cast<float>(generated), logit) - presence;
  }
  return logit;
}

struct TokenEditParams {
  float* logits;               // (S, V)
  const std::int32_t* lanes;   // (n)
  const std::int32_t* tokens;  // (n)
  const float* bias;           // (n); null: the token is barred
  int num_entries;
  int num_lanes;
  int vocabulary;
};

}  // namespace rigel::kernels
