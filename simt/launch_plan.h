#pragma once

// The shape of a launch, for kernels and for plain C++ alike. Pure data: a plan is computed, printed and tested without a device.

#include <cstdint>

#if defined(__CUDACC__) || defined(RIGEL_DEVICE_CUDA)

#include <vector_types.h>

namespace simt {
using ::dim3;
using ::uint3;
}  // namespace simt

#else

namespace simt {

/// CUDA's extents of a grid or a block. A missing extent is 1.
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_extent = 1, unsigned y_extent = 1,  // NOLINT: implicit as in CUDA
                 unsigned z_extent = 1)
      : x(x_extent), y(y_extent), z(z_extent) {}
};

/// CUDA's coordinates of a thread or a block.
struct uint3 {
  unsigned x, y, z;
};

}  // namespace simt

// Kernel text and launchers use CUDA's own spelling.
using simt::dim3;
using simt::uint3;

#endif

namespace simt {

/// What a launch reads and computes for each token that its requests have cached, as far as a window lets them see it.
struct ContextTraffic {
  std::int64_t num_tokens = 0;  // over all requests, as the launch was declared
  double read_bytes = 0;        // a token
  double flops = 0;             // a token
};

/// What a launch moves and computes, as formulas of its shape: the numerator of every roofline.
struct Traffic {
  std::int64_t read_bytes = 0;
  std::int64_t written_bytes = 0;
  std::int64_t flops = 0;
  ContextTraffic context{};  // the share of the above that grows with the context
};

/// Everything a launch needs but the arguments. `shared_bytes` is the dynamic part (at most 227 KB); `programmatic` lets the
/// kernel's blocks come before its predecessor has ended (CUDA only): its text begins with simt::wait_for_predecessor().
struct LaunchPlan {
  dim3 grid{};
  dim3 block{};
  unsigned shared_bytes = 0;
  Traffic traffic{};
  bool programmatic = false;
};

}  // namespace simt
