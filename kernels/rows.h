#pragma once

#include "kernels/rows_params.h"
#include "tensor/launch.h"
#include "tensor/view.h"

#include <span>

// Moves whole rows, whatever they hold: the gather in front of the LM head, and the splice that carries lanes of one step
// into the next. Bytes are copied, 16 at a time where the two addresses agree modulo 16, with single bytes at both ends.

namespace rigel::kernels {

/// out[i] = in[indices[i]].
///   out (n, ...) any dtype, dense    in (N, ...) the same row shape and dtype, dense    indices (n) i32
/// An index of -1 gives a row of zeros, as does one outside `in`. Pre: out and in do not overlap. Stream-ordered, capture-safe.
/// Cost: reads and writes n rows.
void gather_rows(StreamRef stream, DeviceView out, ConstDeviceView in, ConstDeviceView indices);

/// One signal of a splice. All have rows of one dtype and shape, dense in themselves; rows may lie apart (a column block of a
/// wider buffer). An undefined `fresh`: the signal has no fresh rows.
struct RowSplice {
  DeviceView target;       // (lanes or more, ...)
  ConstDeviceView source;  // (M, ...) rows of the step before
  ConstDeviceView fresh;   // (F, ...) rows of requests that join
};

/// The source row that means fresh row `index`.
[[nodiscard]] constexpr std::int32_t fresh_row(std::int32_t index) {
  return -2 - index;
}

/// The signals of a splice in device memory, so that one captured launch serves whatever buffers the step before used.
struct SpliceTable {
  ConstDeviceView entries;            // (signals, kSpliceEntryWords) i64
  std::int64_t widest_row_bytes = 0;  // shapes the grid; wider rows take longer, no more
  std::int64_t lane_bytes = 0;        // of one lane's rows in all signals, for the declared traffic
};

/// Writes the table of `splices` into the step's staging.
///   host (signals * kSpliceEntryWords): the column's host half    device: the same column on the device
/// A host column longer than that is filled with padding entries. Throws CheckError for rows that differ or are not dense.
[[nodiscard]] SpliceTable fill_splice_table(std::span<std::int64_t> host, ConstDeviceView device,
                                            std::span<const RowSplice> splices);

/// For each signal and each lane i: target[i] = source[source_rows[i]], or fresh[f] where that is fresh_row(f); a source row of
/// -1 (padding, or a lane whose rows are in place) leaves the lane untouched, as does one that its buffer does not have.
///   source_rows (lanes) i32, or (signals, lanes) i32 where signals differ
/// Pre: targets have `lanes` rows or more (further ones stay as they are); no target overlaps a source (a graph's two slots
/// alternate). Stream-ordered, capture-safe. Cost: one launch; reads and writes the moved rows.
void splice_rows(StreamRef stream, const SpliceTable& table, ConstDeviceView source_rows);

}  // namespace rigel::kernels
