#pragma once

#include "simt/launch_plan.h"

namespace simt::detail {

/// A kernel with its arguments, as the executor sees it: `body(arguments)` runs one CUDA thread.
struct KernelCall {
  const char* name;
  const LaunchPlan* plan;
  void (*body)(const void* arguments);
  const void* arguments;
};

}  // namespace simt::detail
