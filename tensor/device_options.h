#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rigel {

/// When work put on a stream of the virtual device runs (CUDA ignores it).
enum class DeviceMode : std::uint8_t {
  kThreaded,  // on the stream's own thread
  kEager,     // at the call
  kLazy,      // when something waits for it
  kNull,      // at the call, and only what `null_mode_names` lists: measures the host's own cost
};

/// The order in which the virtual device takes threads of a block, blocks of a grid and nodes of a graph.
enum class DeviceOrder : std::uint8_t { kAscending, kDescending, kRandom };

/// What a device is opened with. What stands below `mode` is for the virtual device.
struct DeviceOptions {
  /// Which GPU.
  int index = 0;
  /// CUDA: kernels that ask for it start while the launch before them ends.
  bool programmatic_launches = true;

  DeviceMode mode = DeviceMode::kThreaded;
  DeviceOrder order = DeviceOrder::kAscending;
  /// Of DeviceOrder::kRandom.
  std::uint64_t seed = 1;
  /// Threads that kernels and native variants share.
  int num_threads = 1;
  std::int64_t memory_bytes = std::int64_t{4} << 30;
  /// Operations that run their device text although a native variant exists: "", "all", or names separated by commas.
  std::string device_texts;
  /// Memory starts as 0xFF (NaN), freed memory becomes it, and so does the host target of a copy until the copy has run.
  bool fill_garbage = true;
  /// cp.async copies at the wait that forces it, else at once.
  bool cp_async_late = true;
  /// The operations that DeviceMode::kNull runs. Its copies to the host give zeros.
  std::vector<std::string> null_mode_names;
};

}  // namespace rigel
