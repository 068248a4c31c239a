#pragma once

#include "tensor/stream.h"
#include "tensor/view.h"

#include <cstdint>

namespace rigel {

// Copies run in stream order. Both sides are contiguous and have the same dtype and number of elements; nothing happens for
// zero of them. Host memory should be pinned: with pageable memory a copy returns only when it is done, and a capture
// refuses it. A copy's host side may be touched again once an event recorded after the copy is past; until then the virtual
// device keeps a target filled with 0xFF.

void copy(StreamRef stream, DeviceView target, ConstHostView source);
void copy(StreamRef stream, HostView target, ConstDeviceView source);
void copy(StreamRef stream, DeviceView target, ConstDeviceView source);

/// Sets every byte of a contiguous view.
void fill_bytes(StreamRef stream, DeviceView target, std::uint8_t value);

}  // namespace rigel
