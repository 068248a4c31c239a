#pragma once

// The host's side of the kernel dialect. See simt/device.h for the same names on CUDA.

#include "simt/host_atomic.h"
#include "simt/host_math.h"
#include "simt/host_matrix.h"
#include "simt/host_memory.h"
#include "simt/host_warp.h"
#include "simt/kernel_calls.h"
#include "simt/loop_condition.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__

[[gnu::always_inline]] inline void __syncthreads(simt::Site site = simt::Site::here()) {
  simt::detail::wait(simt::detail::arrive_at_barrier(site));
}

namespace simt {

/// __syncthreads for text that stands in for its caller: the place is the caller's.
[[gnu::always_inline]] inline void sync_block(Site site) {
  __syncthreads(site);
}

/// Waits until the launch before this one on the stream has ended, and lets the next one start (programmatic launches): the
/// first statement of a kernel that is launched so, in all of its threads. The host never overlaps launches; the executor counts.
inline void wait_for_predecessor() {
  detail::note_predecessor_wait();
}

/// Whether the loop that this kernel is a part of begins another turn when this one has ended. By one thread.
inline void set_loop_condition(LoopCondition condition, bool goes_on) {
  *condition.value = goes_on ? 1 : 0;
}

}  // namespace simt
