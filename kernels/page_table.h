#pragma once

#include "kernels/page_table_params.h"
#include "tensor/launch.h"
#include "tensor/view.h"

namespace rigel::kernels {

/// Writes a step's differences into the page table of the device: page_table[row][index] = page.
///   page_table (R, Pmax) i32    updates (n, 3) i32: {row, index, page}
/// An update of row -1 is padding (a captured step has a fixed n). So is one outside the table: a wild row must not become a
/// wild write. Pre: no two updates of the same entry. Stream-ordered, capture-safe. Cost: reads 12 n bytes, writes 4 n.
void apply_page_updates(StreamRef stream, DeviceView page_table, ConstDeviceView updates);

}  // namespace rigel::kernels
