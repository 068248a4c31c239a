#pragma once

#include "kernels/signals_params.h"
#include "tensor/launch.h"
#include "tensor/view.h"

#include <span>

// What carries a step's outputs over to the next one: rows of batch tensors become tensors of their own where a path edits
// requests one by one, and what a continuing row counts advances on the device.

namespace rigel::kernels {

/// tensor = rows[row]: one named signal of one request.
struct RowTensor {
  DeviceView tensor;     // (...) or (1, ...), dense
  ConstDeviceView rows;  // (N, ...) the signal's batch tensor, of any stride between rows
  std::int64_t row = 0;
};

/// All tensors that a step materializes, in device memory.
struct RowTensorTable {
  ConstDeviceView copies;             // (n, kRowCopyWords) i64
  std::int64_t widest_row_bytes = 0;  // shapes the grid; wider rows take longer, no more
  std::int64_t total_bytes = 0;       // for the declared traffic
};

/// Writes the table of `tensors` into the step's staging.
///   host (n * kRowCopyWords): the column's host half    device: the same column on the device
/// A host column longer than that is filled with padding. Throws CheckError for a row that its batch tensor does not have, and
/// for a tensor that differs from it.
[[nodiscard]] RowTensorTable fill_row_tensor_table(std::span<std::int64_t> host,
                                                   ConstDeviceView device,
                                                   std::span<const RowTensor> tensors);

/// Copies every row of the table into its tensor, whatever signals, requests, dtypes and widths there are.
/// Pre: tensors overlap neither each other nor a batch tensor. Stream-ordered, capture-safe.
/// Cost: one launch; reads and writes the rows.
void materialize_rows(StreamRef stream, const RowTensorTable& table);

/// State of rows that a step moves forward, by row; an undefined view is not wanted.
struct AdvanceColumns {
  DeviceView positions;      // (R) i32
  DeviceView loop_counters;  // (R) i32, one loop's column of a wider table too
  DeviceView last_tokens;    // (R) i32, the token master
};

/// The step's lanes; undefined spans: one position a lane. tokens are needed only with last_tokens.
struct AdvanceLanes {
  ConstDeviceView rows;    // (S) i32; -1: padding
  ConstDeviceView tokens;  // (S) i32; -1: the lane has none
  ConstDeviceView spans;   // (S) i32
};

/// For each lane with a row: positions[row] += span, loop_counters[row] += 1, and last_tokens[row] = token where there is one.
/// Rows outside the columns are skipped like padding. Pre: rows of real lanes are distinct. Stream-ordered, capture-safe.
/// Cost: one launch; at most 20 bytes read and 12 written a lane.
void advance_rows(StreamRef stream, const AdvanceColumns& columns, const AdvanceLanes& lanes);

}  // namespace rigel::kernels
