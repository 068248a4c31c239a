#pragma once

#include "kernels/signals_params.h"
#include "tensor/launch.h"
#include "tensor/view.h"

#include <span>

// What carries a step's outputs over to the next one where a path edits requests one by one: rows of batch tensors become
// tensors of their own.

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

}  // namespace rigel::kernels
