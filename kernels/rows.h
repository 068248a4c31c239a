#pragma once

#include "tensor/launch.h"
#include "tensor/view.h"

#include <span>

// Moves whole rows, whatever they hold: the gather in front of the LM head, and the splice that carries lanes of one step
// into the next. Bytes are copied, 16 at a time where addresses and widths allow.

namespace rigel::kernels {

/// out[i] = in[indices[i]].
///   out (n, ...) any dtype, dense    in (N, ...) the same row shape and dtype, dense    indices (n) i32
/// An index of -1 gives a row of zeros. Pre: indices < N; out and in do not overlap. Stream-ordered, capture-safe.
/// Cost: reads and writes n rows.
void gather_rows(StreamRef stream, DeviceView out, ConstDeviceView in, ConstDeviceView indices);

/// One signal of a splice: rows of `source` go to lanes of `target`. Both dense with rows of the same dtype and shape.
struct RowSplice {
  DeviceView target;       // (lanes, ...)
  ConstDeviceView source;  // (M, ...)
};

/// At most this many signals go in one launch; splice_rows makes as many launches as it needs.
inline constexpr int kMaxSplices = 6;

/// For each signal and each lane i: target[i] = source[source_rows[i]]; a source row of -1 leaves the lane untouched.
///   source_rows (lanes) i32; a target may have more lanes than that, which stay as they are
/// Pre: source rows < M; no target overlaps a source (a graph's two slots alternate). Stream-ordered, capture-safe.
/// Cost: reads and writes the moved rows; one launch for up to kMaxSplices signals.
void splice_rows(StreamRef stream, std::span<const RowSplice> splices, ConstDeviceView source_rows);

}  // namespace rigel::kernels
