#pragma once

#include "simt/kernel_calls.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace simt {

inline constexpr unsigned kFullMask = 0xffffffffu;

namespace detail {

template <class T>
std::uint64_t to_operand(T value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8,
                "warp operations take values of at most 8 bytes");
  std::uint64_t operand = 0;
  std::memcpy(&operand, &value, sizeof(T));
  return operand;
}

template <class T>
T from_result() {
  T value;
  std::memcpy(&value, warp_result, sizeof(T));
  return value;
}

template <class T>
[[gnu::always_inline]] inline T exchange(WarpOperation operation, T value, unsigned argument,
                                         unsigned mask, Site site) {
  wait(arrive_at_warp(operation, {to_operand(value), argument}, mask, site));
  return from_result<T>();
}

template <int W>
constexpr bool is_warp_width = W == 2 || W == 4 || W == 8 || W == 16 || W == 32;

}  // namespace detail

/// The value of lane `lane` (mod 32).
template <class T>
[[gnu::always_inline]] inline T shfl_idx(T value, int lane, unsigned mask = kFullMask,
                                         Site site = Site::here()) {
  return detail::exchange(detail::WarpOperation::kShuffleIndex, value,
                          static_cast<unsigned>(lane) & 31u, mask, site);
}

/// The value of the lane whose number differs by exclusive or with `lane_mask` (< 32).
template <class T>
[[gnu::always_inline]] inline T shfl_xor(T value, int lane_mask, unsigned mask = kFullMask,
                                         Site site = Site::here()) {
  return detail::exchange(detail::WarpOperation::kShuffleXor, value,
                          static_cast<unsigned>(lane_mask), mask, site);
}

/// The value of the lane `distance` below; a lane without one keeps its own.
template <class T>
[[gnu::always_inline]] inline T shfl_up(T value, int distance, unsigned mask = kFullMask,
                                        Site site = Site::here()) {
  return detail::exchange(detail::WarpOperation::kShuffleUp, value, static_cast<unsigned>(distance),
                          mask, site);
}

/// The value of the lane `distance` above; a lane without one keeps its own.
template <class T>
[[gnu::always_inline]] inline T shfl_down(T value, int distance, unsigned mask = kFullMask,
                                          Site site = Site::here()) {
  return detail::exchange(detail::WarpOperation::kShuffleDown, value,
                          static_cast<unsigned>(distance), mask, site);
}

/// The sum over each run of W lanes, in all of them; T is float, int or unsigned. All 32 lanes take part.
template <int W = 32, class T>
[[gnu::always_inline]] inline T warp_sum(T value, Site site = Site::here()) {
  static_assert(detail::is_warp_width<W>, "the width is a power of two up to 32");
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, int> || std::is_same_v<T, unsigned>);
  constexpr auto kOperation =
      std::is_same_v<T, float> ? detail::WarpOperation::kSumFloat : detail::WarpOperation::kSumInt;
  return detail::exchange(kOperation, value, W, kFullMask, site);
}

/// The maximum over each run of W lanes, in all of them; a NaN loses against a number (fmaxf). As warp_sum otherwise.
template <int W = 32, class T>
[[gnu::always_inline]] inline T warp_max(T value, Site site = Site::here()) {
  static_assert(detail::is_warp_width<W>, "the width is a power of two up to 32");
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, int> || std::is_same_v<T, unsigned>);
  constexpr auto kOperation = std::is_same_v<T, float> ? detail::WarpOperation::kMaxFloat
                              : std::is_same_v<T, int> ? detail::WarpOperation::kMaxInt
                                                       : detail::WarpOperation::kMaxUnsigned;
  return detail::exchange(kOperation, value, W, kFullMask, site);
}

}  // namespace simt

[[gnu::always_inline]] inline void __syncwarp(unsigned mask = simt::kFullMask,
                                              simt::Site site = simt::Site::here()) {
  using simt::detail::WarpOperation;
  simt::detail::wait(simt::detail::arrive_at_warp(WarpOperation::kSync, {0, 0}, mask, site));
}

[[gnu::always_inline]] inline unsigned __ballot_sync(unsigned mask, int predicate,
                                                     simt::Site site = simt::Site::here()) {
  using simt::detail::WarpOperation;
  const std::uint64_t operand = predicate != 0 ? 1 : 0;
  return static_cast<unsigned>(
      simt::detail::exchange(WarpOperation::kBallot, operand, 0, mask, site));
}

[[gnu::always_inline]] inline int __any_sync(unsigned mask, int predicate,
                                             simt::Site site = simt::Site::here()) {
  return __ballot_sync(mask, predicate, site) != 0 ? 1 : 0;
}

[[gnu::always_inline]] inline int __all_sync(unsigned mask, int predicate,
                                             simt::Site site = simt::Site::here()) {
  return __ballot_sync(mask, predicate, site) == mask ? 1 : 0;
}

template <class T>
[[gnu::always_inline]] inline unsigned __match_any_sync(unsigned mask, T value,
                                                        simt::Site site = simt::Site::here()) {
  using simt::detail::WarpOperation;
  return static_cast<unsigned>(simt::detail::exchange(
      WarpOperation::kMatchAny, simt::detail::to_operand(value), 0, mask, site));
}
