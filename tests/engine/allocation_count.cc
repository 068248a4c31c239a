#include "tests/engine/allocation_count.h"

#include <cstdlib>
#include <new>

namespace {

thread_local std::uint64_t allocations = 0;

void* allocate(std::size_t num_bytes, std::size_t alignment) {
  ++allocations;
  void* const memory =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(num_bytes == 0 ? 1 : num_bytes)
          : std::aligned_alloc(alignment, (num_bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}

}  // namespace

namespace rigel::testing {

std::uint64_t num_allocations() {
  return allocations;
}

}  // namespace rigel::testing

void* operator new(std::size_t num_bytes) {
  return allocate(num_bytes, 1);
}
void* operator new[](std::size_t num_bytes) {
  return allocate(num_bytes, 1);
}
void* operator new(std::size_t num_bytes, std::align_val_t alignment) {
  return allocate(num_bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t num_bytes, std::align_val_t alignment) {
  return allocate(num_bytes, static_cast<std::size_t>(alignment));
}
// A sanitizer brings these forms of its own, which its free() then misses.
void* operator new(std::size_t num_bytes, const std::nothrow_t&) noexcept {
  return ::operator new(num_bytes);
}
void* operator new[](std::size_t num_bytes, const std::nothrow_t&) noexcept {
  return ::operator new(num_bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
