#pragma once

#include "tensor/launch.h"
#include "tensor/view.h"

#include <cstdint>

namespace rigel::kernels {

/// The nonlinearity of a gated feed-forward layer.
enum class Activation : std::uint8_t {
  kSilu,      // x / (1 + exp(-x))
  kGeluTanh,  // x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  kGeluErf,   // x / 2 (1 + erf(x / sqrt(2)))
};

/// A gated layer's middle: out[t, i] = activation(gate_up[t, i]) * gate_up[t, I + i].
///   out (T, I) bf16 or f32    gate_up (T, 2 I) like out
/// f32 arithmetic, rounded once. Any I; 16-byte accesses where I and the addresses allow. Stream-ordered, capture-safe.
/// Cost: reads 2 T I elements and writes T I.
void gate(StreamRef stream, DeviceView out, ConstDeviceView gate_up, Activation activation);

/// Adds a layer's output to the residual stream.
///   residual (T, C) f32, updated    delta (T, C) bf16 or f32, both dense
void add_to_residual(StreamRef stream, DeviceView residual, ConstDeviceView delta);

/// out = a + b, in f32, rounded once. All three dense and of one activation type and shape; out may be a or b.
void add(StreamRef stream, DeviceView out, ConstDeviceView a, ConstDeviceView b);

}  // namespace rigel::kernels
