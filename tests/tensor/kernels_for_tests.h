#pragma once

#include "tensor/graph.h"
#include "tensor/stream.h"
#include "tensor/view.h"

#include <cstdint>

namespace rigel::testing {

/// out[i] = a[i] + b[i], int32.
void add(StreamRef stream, DeviceView out, ConstDeviceView a, ConstDeviceView b);
/// x[i] = x[i] * factor + term, int32: two of them in the wrong order give another result.
void scale_add(StreamRef stream, DeviceView x, std::int32_t factor, std::int32_t term);
/// The loop that it is captured in goes on while x[0] < limit.
void repeat_until(StreamRef stream, ConstDeviceView x, std::int32_t limit, LoopCondition condition);
/// Fails: some threads return before a barrier of the others.
void diverge(StreamRef stream);

}  // namespace rigel::testing
