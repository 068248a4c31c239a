#include "simt/sanitizer.h"
#include "simt/shared_arena.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace simt::detail {

namespace {

// Slots start at a cache line, at least a red zone after the end of the one before.
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kRedZoneBytes = 64;
constexpr std::size_t kArenaBytes = 512 * 1024;

// Not memset: the sanitizers intercept that, and this is not an access of the kernel.
void fill_with_nan(std::byte* memory, std::size_t num_bytes) {
  asm volatile("rep stosb" : "+D"(memory), "+c"(num_bytes) : "a"(0xff) : "memory");
}

std::byte* map_arena(void* at, int flags) {
  void* mapping = mmap(at, kArenaBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  if (mapping == MAP_FAILED) {
    std::perror("simt: no memory for the shared memory of kernels (mmap)");
    std::abort();
  }
  return static_cast<std::byte*>(mapping);
}

}  // namespace

SharedArena::SharedArena() : memory_(map_arena(nullptr, 0)) {
  poison(memory_, kArenaBytes);
}

SharedArena::~SharedArena() {
  unpoison(memory_, kArenaBytes);
  munmap(memory_, kArenaBytes);
}

void SharedArena::begin_launch(std::size_t dynamic_bytes, bool poison_blocks) {
  poison(memory_, kArenaBytes);
  unpoison(memory_, dynamic_bytes);
  dynamic_bytes_ = dynamic_bytes;
  static_bytes_ = 0;
  num_slots_ = 0;
  poison_ = poison_blocks;
}

void SharedArena::begin_block() {
  if (!poison_) {
    return;
  }
  if (dynamic_bytes_ > 0) {
    fill_with_nan(memory_, dynamic_bytes_);
  }
  for (int index = 0; index < num_slots_; ++index) {
    fill_with_nan(slots_[index].memory, slots_[index].num_bytes);
  }
}

void SharedArena::forget() {
  map_arena(memory_, MAP_FIXED);
}

std::byte* SharedArena::make_slot(const void* key, std::size_t num_bytes) {
  static_bytes_ += num_bytes;
  if (num_slots_ == kMaxSlots || static_bytes_ > kMaxStaticBytes ||
      static_bytes_ + dynamic_bytes_ > kMaxTotalBytes) {
    return nullptr;
  }
  const std::byte* end = memory_ + dynamic_bytes_;
  if (num_slots_ > 0) {
    const Slot& last = slots_[num_slots_ - 1];
    end = last.memory + last.num_bytes;
  }
  std::byte* const memory = after(end);
  slots_[num_slots_++] = {key, memory, num_bytes};
  unpoison(memory, num_bytes);
  if (poison_) {
    fill_with_nan(memory, num_bytes);
  }
  return memory;
}

std::byte* SharedArena::after(const std::byte* end) const {
  const auto used = static_cast<std::size_t>(end - memory_) + kRedZoneBytes;
  return memory_ + (used + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace simt::detail
