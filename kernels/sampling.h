#pragma once

#include "tensor/launch.h"
#include "tensor/view.h"

#include <cstdint>

// From logits to tokens. Probabilities are handled as integer masses (exact_math.h), so sums do not depend on an order and the
// device text, the native variant, every block size and every batch choose the same token from the same logits.

namespace rigel::kernels {

/// How the requests sample, by row (R).
struct SamplingColumns {
  ConstDeviceView temperature;  // (R) f32; 0 (or less): greedy
  ConstDeviceView top_k;        // (R) i32; 0: off, 1: greedy
  ConstDeviceView top_p;        // (R) f32; 0 or 1: off
  ConstDeviceView min_p;        // (R) f32; 0: off
  ConstDeviceView seeds;        // (R) i64, the bits of an unsigned seed
};

/// What a lane's flag says.
inline constexpr std::int32_t kSampled = 0;
inline constexpr std::int32_t kLogitsNotFinite =
    1;  // a NaN, +inf, or nothing but -inf: fail that request

struct SampleOutputs {
  DeviceView tokens;    // (S) i32; -1 for padding lanes and where the flag is not kSampled
  DeviceView flags;     // (S) i32; not written for padding lanes
  DeviceView num_kept;  // (S) i32, how many tokens could have been drawn; an empty view: not wanted
};

/// Samples a token for each lane.
///   logits (S, V) f32, V <= 2^19    rows (S) i32, -1 = padding    positions (S) i32, absolute, of the token to come
/// Greedy (temperature 0 or top_k 1): the first of the largest logits. Else the tokens are ordered by logit (ties: lowest id
/// first) and, in this order,
///   temperature  w = exp((logit - max) / temperature); weights below 2^-44 of the largest count as zero
///   min_p        keeps w >= min_p
///   top_k        keeps exactly k
///   top_p        keeps a token if the tokens before it have less than top_p of the mass that top_k left
/// and one of the rest is drawn in proportion to w with uniform_bits(seed, sampler_id, position) (philox.h): the result depends
/// on the row's logits and columns alone. -inf bars a token. Stream-ordered, capture-safe, no workspace.
/// Cost: reads V floats a lane once for greedy, 3 to 12 times (from cache) otherwise.
void sample(StreamRef stream, const SampleOutputs& outputs, ConstDeviceView logits,
            ConstDeviceView rows, ConstDeviceView positions, const SamplingColumns& columns,
            std::uint32_t sampler_id);

/// tokens[i] = the first of the largest logits of lane i; -1 where a logit is NaN or +inf, or all are -inf.
///   tokens (S) i32    logits (S, V) f32
void argmax(StreamRef stream, DeviceView tokens, ConstDeviceView logits);

/// Makes sampled tokens the inputs of the next step: last_token[rows[i]] = tokens[i].
///   last_token (R) i32, updated    tokens (S) i32    rows (S) i32    publish (S) i32
/// Skipped: padding (row -1), failed samples (token -1), and lanes whose token is thrown away (publish 0).
/// Pre: rows of real lanes are distinct.
void publish_tokens(StreamRef stream, DeviceView last_token, ConstDeviceView tokens,
                    ConstDeviceView rows, ConstDeviceView publish);

}  // namespace rigel::kernels
