#pragma once

#include "simt/device_fault.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>

namespace simt {

/// The memory of the virtual device, and its pinned host memory. It knows what is allocated, so that a copy to or from
/// freed memory is an error; what kernels touch is checked by AddressSanitizer where a build has it, and shows as NaN else:
/// memory is filled with 0xFF when it is allocated, retired and freed, and freed memory stays in quarantine for a while.
///
/// Thread: any. Cost: a lock and a search of the live allocations a call; the fill touches every byte.
class DeviceMemory {
 public:
  /// At most `capacity_bytes` live at once. Without `fill`, contents are left as they are.
  DeviceMemory(std::size_t capacity_bytes, bool fill);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// 256-byte aligned. Null for zero bytes.
  DeviceFault allocate(std::size_t num_bytes, void** address);
  DeviceFault allocate_pinned(std::size_t num_bytes, void** address);
  /// Frees what either of the above gave.
  DeviceFault free(void* address);

  /// The block at `address` stays allocated, but nobody may use it until `revive`: an allocator keeps it for reuse.
  DeviceFault retire(void* address);
  DeviceFault revive(void* address);

  /// All of [address, address + num_bytes) lies in one live block: device memory, or pinned memory, which the device can
  /// address too. `use` starts the message.
  DeviceFault check_reachable(const char* use, const void* address, std::size_t num_bytes) const;
  [[nodiscard]] bool is_pinned(const void* address, std::size_t num_bytes) const;

  [[nodiscard]] std::size_t total_bytes() const { return capacity_bytes_; }
  [[nodiscard]] std::size_t free_bytes() const;

 private:
  enum class State : std::uint8_t { kLive, kRetired, kFreed };
  struct Block {
    std::size_t num_bytes = 0;
    bool pinned = false;
    State state = State::kLive;
  };
  using Blocks = std::map<std::uintptr_t, Block>;

  DeviceFault allocate_block(std::size_t num_bytes, bool pinned, void** address);
  /// The block that holds `address`, or end.
  Blocks::const_iterator find(const void* address) const;
  DeviceFault set_state(void* address, State from, State to, const char* call);
  void quarantine(std::uintptr_t begin, Block& block);
  void release(Blocks::iterator block);

  const std::size_t capacity_bytes_;
  const bool fill_;
  mutable std::mutex mutex_;
  Blocks blocks_;
  std::size_t live_bytes_ = 0;
  std::deque<std::uintptr_t> quarantined_;
  std::size_t quarantined_bytes_ = 0;
};

/// Fills [address, address + num_bytes) with 0xFF: NaN for every float type, -1 for every integer.
void fill_garbage(void* address, std::size_t num_bytes);
/// Under AddressSanitizer any access to the range is reported until `allow_access`. Nothing in other builds.
void forbid_access(void* address, std::size_t num_bytes);
void allow_access(void* address, std::size_t num_bytes);

}  // namespace simt
