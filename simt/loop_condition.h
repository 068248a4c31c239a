#pragma once

// The condition of a loop in a graph, as kernels are given it: `set_loop_condition` of the dialect says whether the loop goes on.

#if defined(__CUDACC__) || defined(RIGEL_DEVICE_CUDA)

#include <cuda_runtime_api.h>

namespace simt {

struct LoopCondition {
  cudaGraphConditionalHandle handle = 0;
};

}  // namespace simt

#else

#include <cstdint>

namespace simt {

struct LoopCondition {
  std::uint32_t* value = nullptr;
};

}  // namespace simt

#endif
