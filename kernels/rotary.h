#pragma once

#include "kernels/rotary_params.h"
#include "tensor/launch.h"
#include "tensor/view.h"

// Rotary position embedding (Su et al., arXiv:2104.09864). The pair (a, b) of a head becomes (a cos - b sin, b cos + a sin),
// in f32, rounded once. Scalings (linear, Llama 3, YaRN) are in the inverse frequencies and in `scale`.

namespace rigel::kernels {

/// Cosines and sines of a step's positions, for all layers.
///   angles (T, R / 2, 2) f32: {cos, sin} * scale    positions (T) i32    inverse_frequencies (R / 2) f32, radians a token
/// A position below 0 (padding) gives zeros. Stream-ordered, capture-safe. Cost: T R / 2 sines and cosines.
void rotary_angles(StreamRef stream, DeviceView angles, ConstDeviceView positions,
                   ConstDeviceView inverse_frequencies, float scale);

/// What rotary_append_kv works on.
struct RotaryAppendArgs {
  DeviceView qkv;  ///< (T, (H + 2 G) * D) T: queries, keys, values; dense rows, any row stride
  ConstDeviceView
      angles;  ///< (T, R / 2, 2) f32 of rotary_angles; R even, <= D: elements behind R pass through
  ConstDeviceView token_rows;  ///< (T) i32: row of each token, -1 = padding
  ConstDeviceView positions;   ///< (T) i32
  ConstDeviceView page_table;  ///< (rows, Pmax) i32
  DeviceView kv_layer;         ///< (P, 2, G, S, D) T; S a power of two
  int num_heads = 0;           ///< H
  bool interleaved = false;    ///< pairs are (2i, 2i + 1), else (i, i + R / 2)
};

/// Rotates the queries in place and writes rotated keys and plain values to their place in the paged cache.
/// Padding tokens are skipped: nothing of theirs is read or written. No two tokens may have the same row and position.
/// Stream-ordered, capture-safe. Cost: reads T (H + 2 G) D elements, writes as many.
void rotary_append_kv(StreamRef stream, const RotaryAppendArgs& args);

/// Rotates all heads in place, without a cache.
///   heads (T, N * D) T, dense rows, any row stride    angles (T, R / 2, 2) f32
/// Cost: reads and writes T N R elements.
void rotary(StreamRef stream, DeviceView heads, ConstDeviceView angles, int head_size,
            bool interleaved);

}  // namespace rigel::kernels
