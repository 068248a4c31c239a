#pragma once

#include "kernels/kv_pages_params.h"
#include "tensor/launch.h"
#include "tensor/view.h"

#include <cstdint>
#include <span>

namespace rigel::kernels {

/// Page `target` of one pool becomes a copy of page `source` of another, or of the same one.
struct PageCopy {
  std::int32_t target = 0;
  std::int32_t source = 0;
};

/// Copies whole pages in all layers, between two pools or inside one. A pool on the host is given by its device view: the
/// kernel writes and reads it in place.
///   target, source (P, L, B) u8: B bytes of page p in layer l, contiguous; pages and layers at any stride
/// Pre: B and the strides multiples of 16, 16-byte aligned; page indices inside the pools; no page is both a target and a
/// source, nor a target twice. Stream-ordered, capture-safe (the indices are baked in). Cost: reads and writes
/// n L B bytes; one launch for up to kMaxPageCopies pages.
void copy_pages(StreamRef stream, DeviceView target, ConstDeviceView source,
                std::span<const PageCopy> copies);

}  // namespace rigel::kernels
