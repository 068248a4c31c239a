#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace simt {

/// The order in which runnable threads of a block, and the blocks of a grid, are taken. A correct kernel gives the same
/// bits in every order; a missing barrier rarely survives all three.
enum class Order : std::uint8_t { kAscending, kDescending, kRandom };

/// How the executor runs kernels. Set once, before the first launch.
struct Options {
  Order order = Order::kAscending;
  /// Of Order::kRandom. The order within a block depends on seed and block index only, not on the OS thread.
  std::uint64_t seed = 1;
  /// A thread that returns before a barrier or warp operation of others is an error. False: CUDA's rule since Volta, where
  /// returned threads no longer count.
  bool strict_exit = true;
  /// Fill shared memory with 0xFF (NaN) before each block.
  bool poison = true;
  /// cp.async copies at the wait that forces it (shows a missing wait), else at issue (shows a missing trailing barrier).
  bool cp_async_late = true;
  /// ThreadSanitizer builds only: forget the order between blocks, so that races between them are reported.
  bool race_blocks = false;
  /// OS threads that share the blocks of a grid; 0 = all of the pool's.
  int threads = 0;
  /// Operations whose device text runs although a native variant exists: "", "all" or names separated by commas.
  std::string device_texts{};
};

/// Whether operation `name` shall run its device text.
[[nodiscard]] bool wants_device_text(const Options& options, std::string_view name);

}  // namespace simt
