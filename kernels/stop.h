#pragma once

#include "kernels/stop_params.h"
#include "tensor/launch.h"
#include "tensor/view.h"

#include <cstdint>
#include <span>

// The end of a step: what the host must know of each real lane goes to pinned memory, with the stop test already made. The
// host finds a record either behind the step's event or by polling its tag.

namespace rigel::kernels {

/// Fills `row.stop_ids` and says in `row.options` whether the host must check the rest of a longer list.
void set_stop_ids(StopRow& row, std::span<const std::int32_t> ids);

/// Starts (or restarts) rows: stop_rows[rows[i]] = values[i].
///   stop_rows (R, kStopRowWords) i32, updated    rows (n) i32    values (n, kStopRowWords) i32, StopRow each, 16-byte aligned
/// Skipped: row -1 (padding of a captured step) and rows outside the table. Pre: no row twice. Stream-ordered, capture-safe.
void set_stop_rows(StreamRef stream, DeviceView stop_rows, ConstDeviceView rows,
                   ConstDeviceView values);

/// What a step gave, by lane; a captured step's static buffers.
struct StepTokens {
  ConstDeviceView rows;    // (S) i32; -1: a padding lane, or one whose token is thrown away
  ConstDeviceView tokens;  // (S) i32; -1: the sample failed
  ConstDeviceView step;    // (1) i64, the step's number, above 0
};

/// Records each real lane of a step: ring[step % entries][lane] = StepRecord, the tag last with a release that the host's
/// acquire of the tag meets. Counts the token: num_generated of the lane's row + 1, unless the sample failed.
///   ring (entries, L, kStepRecordWords) i64, pinned memory as kernels see it, L >= S
///   stop_rows (R, kStopRowWords) i32, updated    eos_ids (E) i32, the model's end tokens, may be empty
/// Lanes of row -1, or of a row outside the table, write nothing. An id stops a row only after min_tokens; lengths stop it
/// always. Pre: rows of real lanes are distinct; nobody reads the ring's entry any more. Stream-ordered, capture-safe.
/// Cost: one launch; 72 bytes read and 36 written a lane.
void stop_copy(StreamRef stream, DeviceView ring, DeviceView stop_rows, ConstDeviceView eos_ids,
               const StepTokens& sampled);

}  // namespace rigel::kernels
