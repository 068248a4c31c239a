#pragma once

#include "simt/kernel_calls.h"

#include <bit>
#include <cstdint>
#include <cstring>

/// An array in the block's shared memory, at least 16-byte aligned: `SIMT_SHARED(float, sums, 8);` declares `sums`.
#define SIMT_SHARED(type, name, count)                                \
  static constexpr char name##_site = 0;                              \
  type* const name = static_cast<type*>(::simt::detail::shared_array( \
      &name##_site, sizeof(type) * static_cast<std::size_t>(count), ::simt::Site::here()))

namespace simt {

/// Sixteen bytes that move at once.
struct alignas(16) Bytes16 {
  std::uint32_t word[4];
};

/// Eight bytes that move at once.
struct alignas(8) Bytes8 {
  std::uint32_t word[2];
};

template <class To, class From>
To bitcast(const From& from) {
  return std::bit_cast<To>(from);
}

/// Loads 16 bytes; `address` is 16-byte aligned.
inline Bytes16 ld16(const void* address, Site site = Site::here()) {
  detail::check_alignment(address, 16, site);
  Bytes16 value;
  std::memcpy(&value, address, 16);
  return value;
}

/// As ld16, for data that is read once: does not displace what the caches hold.
inline Bytes16 ld16_stream(const void* address, Site site = Site::here()) {
  return ld16(address, site);
}

/// Stores 16 bytes; `address` is 16-byte aligned.
inline void st16(void* address, Bytes16 value, Site site = Site::here()) {
  detail::check_alignment(address, 16, site);
  std::memcpy(address, &value, 16);
}

/// Loads 8 bytes; `address` is 8-byte aligned.
inline Bytes8 ld8(const void* address, Site site = Site::here()) {
  detail::check_alignment(address, 8, site);
  Bytes8 value;
  std::memcpy(&value, address, 8);
  return value;
}

/// Stores 8 bytes; `address` is 8-byte aligned.
inline void st8(void* address, Bytes8 value, Site site = Site::here()) {
  detail::check_alignment(address, 8, site);
  std::memcpy(address, &value, 8);
}

/// Starts copying 16 bytes from global to shared memory, both 16-byte aligned; zeros when `valid` is false. Lands, for this
/// thread, with the wait that covers its group; for others with a barrier after that.
inline void cp_async16(void* shared, const void* global, bool valid = true,
                       Site site = Site::here()) {
  detail::issue_async_copy(shared, valid ? global : nullptr, site);
}
/// Closes the group of copies issued since the last commit.
inline void cp_async_commit() {
  detail::commit_async_copies();
}
/// Waits for all committed groups but the newest N.
template <int N>
void cp_async_wait() {
  detail::wait_async_copies(N);
}

/// The dynamic part of the block's shared memory (LaunchPlan::shared_bytes), at least 16-byte aligned.
template <class T>
T* dyn_smem() {
  return static_cast<T*>(detail::dynamic_shared());
}

}  // namespace simt
