#pragma once

#include "tensor/stream.h"
#include "tensor/view.h"

#include <cstdint>

namespace rigel::testing {

/// out[i] = a[i] + b[i], int32.
void add(StreamRef stream, DeviceView out, ConstDeviceView a, ConstDeviceView b);
/// x[i] = x[i] * factor + term, int32: two of them in the wrong order give another result.
void scale_add(StreamRef stream, DeviceView x, std::int32_t factor, std::int32_t term);
/// Fails: some threads return before a barrier of the others.
void diverge(StreamRef stream);

}  // namespace rigel::testing
