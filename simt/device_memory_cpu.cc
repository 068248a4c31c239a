#include "simt/device_memory.h"

#include <sanitizer/asan_interface.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>

namespace simt {
namespace {

constexpr std::size_t kAlignmentBytes = 256;
constexpr std::size_t kQuarantineBytes = std::size_t{64} << 20;

DeviceFault invalid(const char* call, const void* address, const char* why) {
  char text[160];
  std::snprintf(text, sizeof text, "%s of %p: %s", call, address, why);
  return {FaultCode::kInvalidValue, text};
}

}  // namespace

void fill_garbage(void* address, std::size_t num_bytes) {
  std::memset(address, 0xFF, num_bytes);
}

void forbid_access([[maybe_unused]] void* address, [[maybe_unused]] std::size_t num_bytes) {
  ASAN_POISON_MEMORY_REGION(address, num_bytes);
}

void allow_access([[maybe_unused]] void* address, [[maybe_unused]] std::size_t num_bytes) {
  ASAN_UNPOISON_MEMORY_REGION(address, num_bytes);
}

DeviceMemory::DeviceMemory(std::size_t capacity_bytes, bool fill)
    : capacity_bytes_(capacity_bytes), fill_(fill) {}

DeviceMemory::~DeviceMemory() {
  while (!blocks_.empty()) {
    release(blocks_.begin());
  }
}

DeviceFault DeviceMemory::allocate(std::size_t num_bytes, void** address) {
  return allocate_block(num_bytes, false, address);
}

DeviceFault DeviceMemory::allocate_pinned(std::size_t num_bytes, void** address) {
  return allocate_block(num_bytes, true, address);
}

DeviceFault DeviceMemory::allocate_block(std::size_t num_bytes, bool pinned, void** address) {
  *address = nullptr;
  if (num_bytes == 0) {
    return {};
  }
  {
    const std::lock_guard lock(mutex_);
    if (!pinned && num_bytes > capacity_bytes_ - live_bytes_) {
      return {FaultCode::kMemoryAllocation,
              "out of device memory: " + std::to_string(num_bytes) + " bytes asked for, " +
                  std::to_string(capacity_bytes_ - live_bytes_) + " of " +
                  std::to_string(capacity_bytes_) + " are free"};
    }
    live_bytes_ += pinned ? 0 : num_bytes;
  }
  void* block = nullptr;
  const bool allocated = ::posix_memalign(&block, kAlignmentBytes, num_bytes) == 0;
  if (allocated && fill_) {
    fill_garbage(block, num_bytes);
  }
  const std::lock_guard lock(mutex_);
  if (!allocated) {
    live_bytes_ -= pinned ? 0 : num_bytes;
    return {FaultCode::kMemoryAllocation,
            "the host has no " + std::to_string(num_bytes) + " bytes left for the virtual device"};
  }
  blocks_[reinterpret_cast<std::uintptr_t>(block)] = {num_bytes, pinned, State::kLive};
  *address = block;
  return {};
}

DeviceFault DeviceMemory::free(void* address) {
  if (address == nullptr) {
    return {};
  }
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(reinterpret_cast<std::uintptr_t>(address));
  if (block == blocks_.end() || block->second.state == State::kFreed) {
    return invalid("free", address, block == blocks_.end() ? "not an allocation" : "freed before");
  }
  live_bytes_ -= block->second.pinned ? 0 : block->second.num_bytes;
  if (block->second.num_bytes > kQuarantineBytes / 4) {
    release(block);  // The next access to so big a block faults: the C library unmaps it.
  } else {
    quarantine(block->first, block->second);
  }
  return {};
}

void DeviceMemory::quarantine(std::uintptr_t begin, Block& block) {
  auto* bytes = reinterpret_cast<void*>(begin);
  if (block.state == State::kLive && fill_) {
    fill_garbage(bytes, block.num_bytes);
  }
  forbid_access(bytes, block.num_bytes);
  block.state = State::kFreed;
  quarantined_.push_back(begin);
  quarantined_bytes_ += block.num_bytes;
  while (quarantined_bytes_ > kQuarantineBytes) {
    const auto oldest = blocks_.find(quarantined_.front());
    quarantined_.pop_front();
    quarantined_bytes_ -= oldest->second.num_bytes;
    release(oldest);
  }
}

void DeviceMemory::release(Blocks::iterator block) {
  auto* bytes = reinterpret_cast<void*>(block->first);
  allow_access(bytes, block->second.num_bytes);
  std::free(bytes);
  blocks_.erase(block);
}

DeviceFault DeviceMemory::set_state(void* address, State from, State to, const char* call) {
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(reinterpret_cast<std::uintptr_t>(address));
  if (block == blocks_.end() || block->second.state != from) {
    return invalid(call, address, "the block is not in the state for it");
  }
  block->second.state = to;
  if (to == State::kLive) {
    allow_access(address, block->second.num_bytes);
    return {};
  }
  if (fill_) {
    fill_garbage(address, block->second.num_bytes);
  }
  forbid_access(address, block->second.num_bytes);
  return {};
}

DeviceFault DeviceMemory::retire(void* address) {
  return set_state(address, State::kLive, State::kRetired, "retirement");
}

DeviceFault DeviceMemory::revive(void* address) {
  return set_state(address, State::kRetired, State::kLive, "reuse");
}

DeviceMemory::Blocks::const_iterator DeviceMemory::find(const void* address) const {
  auto next = blocks_.upper_bound(reinterpret_cast<std::uintptr_t>(address));
  if (next == blocks_.begin()) {
    return blocks_.end();
  }
  const auto block = std::prev(next);
  const std::uintptr_t distance = reinterpret_cast<std::uintptr_t>(address) - block->first;
  return distance < block->second.num_bytes ? block : blocks_.end();
}

DeviceFault DeviceMemory::check_reachable(const char* use, const void* address,
                                          std::size_t num_bytes) const {
  const std::lock_guard lock(mutex_);
  const auto block = find(address);
  const char* why = nullptr;
  if (block == blocks_.end()) {
    why = "memory that is not allocated on the device";
  } else if (block->second.state != State::kLive) {
    why = "freed memory";
  } else if (reinterpret_cast<std::uintptr_t>(address) - block->first + num_bytes >
             block->second.num_bytes) {
    why = "past the end of its allocation";
  }
  if (why == nullptr) {
    return {};
  }
  char text[200];
  std::snprintf(text, sizeof text, "%s %s: %zu bytes at %p", use, why, num_bytes, address);
  return {FaultCode::kIllegalAddress, text};
}

bool DeviceMemory::is_pinned(const void* address, std::size_t num_bytes) const {
  const std::lock_guard lock(mutex_);
  const auto block = find(address);
  return block != blocks_.end() && block->second.pinned && block->second.state == State::kLive &&
         reinterpret_cast<std::uintptr_t>(address) - block->first + num_bytes <=
             block->second.num_bytes;
}

std::size_t DeviceMemory::free_bytes() const {
  const std::lock_guard lock(mutex_);
  return capacity_bytes_ - live_bytes_;
}

}  // namespace simt
