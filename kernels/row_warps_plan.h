#pragma once

#include "kernels/launch_checks.h"
#include "tensor/launch.h"

#include <algorithm>
#include <cstdint>

namespace rigel::kernels {

inline constexpr int kRowWarpsBlock = 128;

/// The launch of a kernel that gives each row a warp, or several where the widest row asks for them: grid (rows / warps of a
/// block, warps along a row, signals).
inline LaunchPlan row_warps_plan(std::int64_t num_rows, std::int64_t widest_row_bytes,
                                 std::int64_t num_signals, const Traffic& traffic) {
  // Four rounds of 16 bytes a thread.
  constexpr std::int64_t kBytesPerWarp = 2048;
  constexpr std::int64_t kMaxWarpsPerRow = 64;
  const std::int64_t warps =
      std::clamp<std::int64_t>(ceil_div(widest_row_bytes, kBytesPerWarp), 1, kMaxWarpsPerRow);
  LaunchPlan plan;
  plan.grid = dim3(static_cast<unsigned>(ceil_div(num_rows, kRowWarpsBlock / 32)),
                   static_cast<unsigned>(warps), static_cast<unsigned>(num_signals));
  plan.block = dim3(kRowWarpsBlock);
  plan.traffic = traffic;
  return plan;
}

}  // namespace rigel::kernels
