#include "worker/thread_costs.h"

#include "worker/thread_counters.h"

#include <pthread.h>

#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RIGEL_COUNTS_THREAD_COSTS 0
#else
#define RIGEL_COUNTS_THREAD_COSTS 1
#endif

namespace rigel {

thread_local constinit detail::ThreadCounters detail::thread_counters;

ThreadCosts thread_costs() {
  return detail::thread_counters.costs;
}

bool counts_thread_costs() {
  return RIGEL_COUNTS_THREAD_COSTS != 0;
}

CostsApart::CostsApart() {
  ++detail::thread_counters.num_apart;
}

CostsApart::~CostsApart() {
  --detail::thread_counters.num_apart;
}

}  // namespace rigel

#if RIGEL_COUNTS_THREAD_COSTS

namespace {

void* counted(std::size_t num_bytes) {
  ++rigel::detail::thread_counters.costs.allocations;
  return std::malloc(num_bytes == 0 ? 1 : num_bytes);
}

void* counted(std::size_t num_bytes, std::align_val_t alignment) {
  ++rigel::detail::thread_counters.costs.allocations;
  const auto align = static_cast<std::size_t>(alignment);
  return std::aligned_alloc(align, (num_bytes + align - 1) / align * align);
}

void* checked(void* memory) {
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}

}  // namespace

// The program's own operator new; the forms for arrays and those that do not throw call these. Deleting is the library's.
void* operator new(std::size_t num_bytes) {
  return checked(counted(num_bytes));
}
void* operator new(std::size_t num_bytes, std::align_val_t alignment) {
  return checked(counted(num_bytes, alignment));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*num_bytes*/) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*num_bytes*/,
                     std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}

// The linker sends this program's calls of pthread_mutex_lock here (--wrap, CMakeLists.txt).
// NOLINTBEGIN(bugprone-reserved-identifier): names that the linker gives
extern "C" int __real_pthread_mutex_lock(pthread_mutex_t* mutex);
extern "C" int __wrap_pthread_mutex_lock(pthread_mutex_t* mutex) {
  ++rigel::detail::thread_counters.costs.locks;
  return __real_pthread_mutex_lock(mutex);
}
// NOLINTEND(bugprone-reserved-identifier)

#endif
