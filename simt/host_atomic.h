#pragma once

// CUDA's atomics order nothing by themselves. Here they acquire and release, because "the last block to arrive" patterns
// order through __threadfence, which the race detector does not understand.

#include <bit>
#include <cstdint>

inline int atomicAdd(int* address, int value) {
  return __atomic_fetch_add(address, value, __ATOMIC_ACQ_REL);
}
inline unsigned atomicAdd(unsigned* address, unsigned value) {
  return __atomic_fetch_add(address, value, __ATOMIC_ACQ_REL);
}
inline unsigned long long atomicAdd(unsigned long long* address, unsigned long long value) {
  return __atomic_fetch_add(address, value, __ATOMIC_ACQ_REL);
}
inline float atomicAdd(float* address, float value) {
  auto* const word = reinterpret_cast<std::uint32_t*>(address);
  std::uint32_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);
  std::uint32_t wanted;
  do {
    wanted = std::bit_cast<std::uint32_t>(std::bit_cast<float>(seen) + value);
  } while (
      !__atomic_compare_exchange_n(word, &seen, wanted, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
  return std::bit_cast<float>(seen);
}

namespace simt::detail {

template <class T, class Better>
T atomic_replace_if(T* address, T value, Better better) {
  T seen = __atomic_load_n(address, __ATOMIC_ACQUIRE);
  while (better(value, seen) && !__atomic_compare_exchange_n(address, &seen, value, true,
                                                             __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
  }
  return seen;
}

}  // namespace simt::detail

inline int atomicMax(int* address, int value) {
  return simt::detail::atomic_replace_if(address, value, [](int a, int b) { return a > b; });
}
inline unsigned atomicMax(unsigned* address, unsigned value) {
  return simt::detail::atomic_replace_if(address, value,
                                         [](unsigned a, unsigned b) { return a > b; });
}
inline int atomicMin(int* address, int value) {
  return simt::detail::atomic_replace_if(address, value, [](int a, int b) { return a < b; });
}
inline unsigned atomicMin(unsigned* address, unsigned value) {
  return simt::detail::atomic_replace_if(address, value,
                                         [](unsigned a, unsigned b) { return a < b; });
}
inline unsigned atomicOr(unsigned* address, unsigned value) {
  return __atomic_fetch_or(address, value, __ATOMIC_ACQ_REL);
}
inline int atomicExch(int* address, int value) {
  return __atomic_exchange_n(address, value, __ATOMIC_ACQ_REL);
}
inline unsigned atomicExch(unsigned* address, unsigned value) {
  return __atomic_exchange_n(address, value, __ATOMIC_ACQ_REL);
}
inline int atomicCAS(int* address, int expected, int value) {
  __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return expected;
}
inline unsigned atomicCAS(unsigned* address, unsigned expected, unsigned value) {
  __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return expected;
}

/// The atomics above are the fences; only the compiler must not move anything.
inline void __threadfence() {
  asm volatile("" ::: "memory");
}
inline void __threadfence_block() {
  asm volatile("" ::: "memory");
}

namespace simt {

/// Stores a word that the host may poll in pinned memory: who reads it with acquire also sees what this thread wrote before.
inline void store_release_system(std::uint64_t* address, std::uint64_t value) {
  __atomic_store_n(address, value, __ATOMIC_RELEASE);
}

/// atomicAdd on shared memory: only threads of the block take part. They share an OS thread, so no bus lock is needed; the
/// race detector still must see an atomic.
template <class T>
T atomic_add_block(T* address, T value) {
#if defined(__SANITIZE_THREAD__)
  return atomicAdd(address, value);
#else
  const T seen = *address;
  *address = seen + value;
  return seen;
#endif
}

}  // namespace simt
