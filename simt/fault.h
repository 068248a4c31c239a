#pragma once

#include "simt/kernel_calls.h"
#include "simt/status.h"

namespace simt::detail {

enum class FaultKind : std::uint8_t {
  kNone,
  kReturnedBeforeBarrier,  // a thread returned, others wait at a barrier
  kBarrierAfterReturn,     // a thread is at a barrier, others have returned
  kBarrierSites,           // two barriers at once
  kReturnedBeforeWarp,     // a thread returned, lanes of its warp wait for it
  kWarpAfterReturn,        // a mask names a lane that has returned or never was
  kWarpMismatch,           // lanes of a mask meet in different operations
  kLaneOutsideMask,
  kShuffleSource,  // a lane reads from one outside the mask
  kDeadlock,
  kMisaligned,
  kSharedOverflow,
  kTooManyCopies,
  kUnordered,  // launched programmatically, and a thread does not wait for the launch before
};

/// A fault as the kernel's thread noted it. Turned into words on the scheduler's stack, which is larger.
struct Fault {
  FaultKind kind = FaultKind::kNone;
  Site site{"", 0};        // of the thread at fault
  Site other_site{"", 0};  // of those that it was compared with
  WarpOperation operation = WarpOperation::kSync;
  WarpOperation other_operation = WarpOperation::kSync;
  unsigned mask = 0;
  unsigned other_mask = 0;
  int thread = 0;  // linear index
  int other = 0;   // a number of threads, or a lane
  const void* address = nullptr;
  unsigned num_bytes = 0;
};

/// "shuffle_xor", ...
[[nodiscard]] const char* name_of(WarpOperation operation);

/// Only the file's name: paths are long and differ between machines.
[[nodiscard]] const char* file_of(Site site);

/// The fault in words, without kernel, thread and block. A deadlock gets only its headline.
void describe(const Fault& fault, uint3 thread, Status& status);

}  // namespace simt::detail
