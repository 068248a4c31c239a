#pragma once

#include "worker/thread_costs.h"

namespace rigel::detail {

/// A thread's counters and what counting its system calls needs. For thread_costs.cc and syscall_count.cc.
struct ThreadCounters {
  ThreadCosts costs;
  int num_apart = 0;
  volatile char dispatches = 0;  // read by the kernel: 1, system calls go to the handler
};

extern thread_local constinit ThreadCounters thread_counters;

}  // namespace rigel::detail
