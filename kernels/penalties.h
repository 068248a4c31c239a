#pragma once

#include "tensor/launch.h"
#include "tensor/view.h"

// What changes logits before sampling: bias, barred tokens and penalties for tokens seen. Counts live on the device and are
// advanced there, in the step's own graph, so that a penalty never reads a list that is one step old.
//
// A pool `counts (slots, V) i32` holds one row a request with penalties: the low 30 bits are how often the token was generated,
// bit 30 is set when it stood in the prompt. The owner zeroes a slot's row (fill_bytes) when it hands the slot out.

namespace rigel::kernels {

/// Bit of a count: the token is part of the prompt.
inline constexpr std::int32_t kSeenInPrompt = 1 << 30;

/// Penalties of a request, by row (R). Rows without penalties have slot -1; no other column of theirs is read.
struct PenaltyColumns {
  ConstDeviceView slots;       // (R) i32, row of the pool of counts or -1
  ConstDeviceView repetition;  // (R) f32, 1 = off
  ConstDeviceView presence;    // (R) f32, 0 = off
  ConstDeviceView frequency;   // (R) f32, 0 = off
};

/// Marks prompt tokens as seen.
///   counts (slots, V) i32, updated    slots (n) i32    tokens (n) i32
/// Entries with slot -1, or a token outside the vocabulary, are skipped; duplicates are fine. Stream-ordered, capture-safe.
void count_prompt(StreamRef stream, DeviceView counts, ConstDeviceView slots,
                  ConstDeviceView tokens);

/// Counts the tokens a step generated, after sampling.
///   counts (slots, V) i32, updated    slots (R) i32 by row    rows (S) i32    tokens (S) i32    publish (S) i32
/// Skipped: padding (row -1), rows without slot, failed samples (token -1), and lanes whose token is thrown away (publish 0).
void count_tokens(StreamRef stream, DeviceView counts, ConstDeviceView slots, ConstDeviceView rows,
                  ConstDeviceView tokens, ConstDeviceView publish);

/// Applies the penalties, in the order of OpenAI's API and vLLM: repetition first (tokens of the prompt and generated ones:
/// a positive logit is divided, a negative one multiplied), then logit -= frequency * count + presence * (count > 0) for
/// generated tokens.
///   logits (S, V) f32, updated    counts (slots, V) i32    rows (S) i32
/// Lanes without a slot keep their bits. Stream-ordered, capture-safe. Cost: reads 8 V bytes and writes at most 4 V for each
/// lane with a slot; a lane without one costs nothing.
void apply_penalties(StreamRef stream, DeviceView logits, ConstDeviceView counts,
                     ConstDeviceView rows, const PenaltyColumns& columns);

/// logits[lanes[i], tokens[i]] += bias[i].
///   logits (S, V) f32, updated    lanes (n) i32    tokens (n) i32    bias (n) f32
/// Entries with lane -1 are skipped. Pre: no (lane, token) twice. Stream-ordered, capture-safe.
void apply_logit_bias(StreamRef stream, DeviceView logits, ConstDeviceView lanes,
                      ConstDeviceView tokens, ConstDeviceView bias);

/// logits[lanes[i], tokens[i]] = -inf: the stop tokens of lanes that have not reached min_tokens yet.
///   logits (S, V) f32, updated    lanes (n) i32    tokens (n) i32
/// Entries with lane -1 are skipped. Stream-ordered, capture-safe.
void bar_tokens(StreamRef stream, DeviceView logits, ConstDeviceView lanes, ConstDeviceView tokens);

}  // namespace rigel::kernels
