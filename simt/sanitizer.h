#pragma once

// What the executor tells the sanitizers. Every function is empty in a plain build.

#include "simt/fiber.h"

#include <cstddef>

#if defined(SIMT_ASAN)
#include <sanitizer/asan_interface.h>
extern "C" void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom,
                                               std::size_t num_bytes);
extern "C" void __sanitizer_finish_switch_fiber(void* fake_stack, const void** old_bottom,
                                                std::size_t* old_num_bytes);
#endif
#if defined(SIMT_TSAN)
extern "C" void* __tsan_get_current_fiber();
extern "C" void* __tsan_create_fiber(unsigned flags);
extern "C" void __tsan_destroy_fiber(void* fiber);
extern "C" void __tsan_switch_to_fiber(void* fiber, unsigned flags);
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
extern "C" void __tsan_read_range(void* address, unsigned long num_bytes);
extern "C" void __tsan_write_range(void* address, unsigned long num_bytes);
#endif

namespace simt::detail {

[[gnu::always_inline]] inline void poison([[maybe_unused]] const void* address,
                                          [[maybe_unused]] std::size_t num_bytes) {
#if defined(SIMT_ASAN)
  __asan_poison_memory_region(address, num_bytes);
#endif
}

[[gnu::always_inline]] inline void unpoison([[maybe_unused]] const void* address,
                                            [[maybe_unused]] std::size_t num_bytes) {
#if defined(SIMT_ASAN)
  __asan_unpoison_memory_region(address, num_bytes);
#endif
}

[[gnu::always_inline]] inline void* create_race_fiber() {
#if defined(SIMT_TSAN)
  return __tsan_create_fiber(0);
#else
  return nullptr;
#endif
}

[[gnu::always_inline]] inline void destroy_race_fiber([[maybe_unused]] void* fiber) {
#if defined(SIMT_TSAN)
  __tsan_destroy_fiber(fiber);
#endif
}

[[gnu::always_inline]] inline void* current_race_fiber() {
#if defined(SIMT_TSAN)
  return __tsan_get_current_fiber();
#else
  return nullptr;
#endif
}

/// What the running thread did so far happens before whatever follows an acquire of the same object.
[[gnu::always_inline]] inline void race_release([[maybe_unused]] const void* object) {
#if defined(SIMT_TSAN)
  __tsan_release(const_cast<void*>(object));
#endif
}

[[gnu::always_inline]] inline void race_acquire([[maybe_unused]] const void* object) {
#if defined(SIMT_TSAN)
  if (object != nullptr) {
    __tsan_acquire(const_cast<void*>(object));
  }
#endif
}

/// The executor touched these bytes on behalf of the running thread.
[[gnu::always_inline]] inline void race_read([[maybe_unused]] const void* address,
                                             [[maybe_unused]] std::size_t num_bytes) {
#if defined(SIMT_TSAN)
  __tsan_read_range(const_cast<void*>(address), num_bytes);
#endif
}

[[gnu::always_inline]] inline void race_write([[maybe_unused]] void* address,
                                              [[maybe_unused]] std::size_t num_bytes) {
#if defined(SIMT_TSAN)
  __tsan_write_range(address, num_bytes);
#endif
}

}  // namespace simt::detail
