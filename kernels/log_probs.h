#pragma once

#include "tensor/launch.h"
#include "tensor/view.h"

#include <cstdint>

namespace rigel::kernels {

/// The most alternatives a lane can ask for.
inline constexpr int kMaxTopLogProbs = 64;

struct LogProbOutputs {
  DeviceView chosen;      // (S) f32, log probability of the chosen token
  DeviceView top_tokens;  // (S, K) i32, the most likely tokens, best first, ties by the lower id
  DeviceView top_values;  // (S, K) f32, their log probabilities
};

/// Log-softmax of a lane's logits at the chosen token and at the most likely ones.
///   logits (S, V) f32, raw: before bias, penalties and temperature; V <= 2^19
///   chosen (S) i32, -1 (or outside the vocabulary): NaN is returned for it
///   num_top (S) i32: how many alternatives a lane wants, 0 to K <= kMaxTopLogProbs; -1: nothing at all, no output is written
/// Entries beyond num_top are -1 and -inf. A lane with a NaN, with +inf or with nothing above -inf gives NaN and tokens of -1.
/// Sums are exact integers (exact_math.h), so the values do not depend on batch, block size or variant. Error: 2e-7
/// relative, plus at most V * 2^-44 absolute (3e-9 for 49,152 tokens), which shows only where a token is nearly certain.
/// Stream-ordered, capture-safe. Cost: reads V floats a lane twice; with alternatives 3 to 5 times.
void log_probs(StreamRef stream, const LogProbOutputs& outputs, ConstDeviceView logits,
               ConstDeviceView chosen, ConstDeviceView num_top);

}  // namespace rigel::kernels
