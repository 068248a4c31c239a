#pragma once

#include "tensor/launch.h"
#include "tensor/view.h"

// Root mean square norms (Zhang and Sennrich 2019): y = x * weight / sqrt(mean(x^2) + epsilon). Statistics and products are f32
// and the result rounds once. A row's bits depend on that row alone: neither on the number of rows nor on its place.

namespace rigel::kernels {

/// Normalises the rows of the residual stream.
///   out (T, C) bf16 or f32    x (T, C) f32    weight (C) f32
/// Any C; 16-byte accesses where C and the addresses allow. Stream-ordered, capture-safe.
/// Cost: reads 4 T C bytes and writes T C elements.
void rms_norm(StreamRef stream, DeviceView out, ConstDeviceView x, ConstDeviceView weight,
              float epsilon);

/// Adds a layer's output to the residual stream, then normalises it: residual += delta; out = norm(residual).
///   out (T, C) bf16 or f32    residual (T, C) f32, updated    delta (T, C) like out    weight (C) f32
/// Cost: reads 4 T C bytes and T C elements, writes as much.
void add_rms_norm(StreamRef stream, DeviceView out, DeviceView residual, ConstDeviceView delta,
                  ConstDeviceView weight, float epsilon);

/// Normalises each head in place (the query and key norms of Qwen 3 and others).
///   heads (T, H, D) bf16 or f32, any token and head stride, dense in D    weight (D) f32
/// Cost: reads and writes T H D elements.
void head_rms_norm(StreamRef stream, DeviceView heads, ConstDeviceView weight, float epsilon);

}  // namespace rigel::kernels
