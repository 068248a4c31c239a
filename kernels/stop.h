#pragma once

#include "kernels/stop_params.h"
#include "tensor/stream.h"
#include "tensor/view.h"

#include <cstdint>
#include <span>

// The end of a step: what the host must know of each real lane goes to pinned memory, with the stop test already made.

namespace rigel::kernels {

/// Fills `row.stop_ids` and says in `row.options` whether the host must check the rest of a longer list.
void set_stop_ids(StopRow& row, std::span<const std::int32_t> ids);

/// Starts (or restarts) rows: stop_rows[rows[i]] = values[i].
///   stop_rows (R, kStopRowWords) i32, updated    rows (n) i32    values (n, kStopRowWords) i32, StopRow each, 16-byte aligned
/// Skipped: row -1 (padding of a captured step) and rows outside the table. Pre: no row twice. Stream-ordered, capture-safe.
void set_stop_rows(StreamRef stream, DeviceView stop_rows, ConstDeviceView rows,
                   ConstDeviceView values);

/// The place of a step's results: entry `step % entries` of a ring, which the launch finds by itself, so that a captured
/// one serves every step.
struct ResultPlace {
  DeviceView
      ring;  // (entries, B) u8, pinned memory as kernels see it; 16-byte aligned, as is each entry
  ConstDeviceView step;  // (1) i64 on the device: the step's number, above 0
};

/// Row outputs that travel as they are.
struct StopBuffer {
  ConstDeviceView rows;           // (N, ...), dense; without dimensions it is one row
  std::int64_t offset_bytes = 0;  // of row 0 in the entry
};

/// What decides over the lanes that sampled.
struct StopTest {
  DeviceView stop_rows;     // (R, kStopRowWords) i32, updated
  ConstDeviceView eos_ids;  // (E) i32, the model's end tokens, may be empty
  ConstDeviceView rows;     // (S) i32; -1: a padding lane, or one whose token is thrown away
  ConstDeviceView tokens;   // (S) i32; -1: the sample failed
};

/// The end of a step in one launch: up to kMaxStopBuffers row outputs, and a StepRecord a lane where there is a test. A record's
/// tag comes last, with a release that the host's acquire of the tag meets: once it is there, so are the lane's rows. Counts
/// the token: num_generated of the lane's row + 1, unless the sample failed.
/// Lanes of row -1, or of a row outside the table, write nothing: no record, and no row of a buffer with a row a lane. An id
/// stops a row only after min_tokens; lengths stop it always.
/// `records_offset`: of lane 0's record in the entry, a multiple of 16. Pre: rows of real lanes are distinct; nobody reads the
/// ring's entry any more. Stream-ordered, capture-safe. Cost: one launch, a warp a row; without buffers 72 bytes read and 36
/// written a lane.
void stop_copy(StreamRef stream, const ResultPlace& place, std::span<const StopBuffer> buffers,
               const StopTest* test, std::int64_t records_offset);

}  // namespace rigel::kernels
