#pragma once

#include "tensor/stream.h"

namespace rigel::detail {

// What the caching allocator needs of a stream. None of these throws: they serve destructors, and a failure of earlier work
// surfaces elsewhere.

/// What follows on `stream` runs after what is on `other` so far.
void order_after(StreamState& stream, StreamState& other) noexcept;
/// From here on in the stream's order nobody uses the block at `address`, and it is garbage.
void retire_block(StreamState& stream, void* address) noexcept;
/// From here on in the stream's order the block may be used again.
void revive_block(StreamState& stream, void* address) noexcept;

}  // namespace rigel::detail
