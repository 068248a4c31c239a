#include "tests/worker/walk_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::int64_t> num_calls{0};

}  // namespace

// The other forms of the library call these two.
void* operator new(std::size_t num_bytes) {
  num_calls.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(num_bytes == 0 ? 1 : num_bytes)) {
    return memory;
  }
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*num_bytes*/) noexcept {
  std::free(memory);
}

namespace rigel::testing {

std::int64_t num_allocations() {
  return num_calls.load(std::memory_order_relaxed);
}

}  // namespace rigel::testing
