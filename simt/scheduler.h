#pragma once

// The scheduler's inner steps, taken at every rendezvous: which thread runs next, and on which fiber. Included by the
// executor's own sources only, so that each rendezvous is one call from the kernel.

#include "simt/multiprocessor.h"
#include "simt/sanitizer.h"

#include <bit>

namespace simt::detail {

#if defined(SIMT_TSAN)
// A stack carries one thread a block: else the detector would order the threads that it carries.
inline constexpr bool kCarryLanes = false;
#else
inline constexpr bool kCarryLanes = true;
#endif

inline std::uint64_t Multiprocessor::next_random() {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return random_;
}

// `lanes` is not empty; the masks tell the compiler so.
inline int Multiprocessor::choose_lane(unsigned lanes) {
  switch (order_) {
    case Order::kAscending:
      return std::countr_zero(lanes) & 31;
    case Order::kDescending:
      return (31 - std::countl_zero(lanes)) & 31;
    case Order::kRandom:
      break;
  }
  const auto num_lanes = static_cast<std::uint64_t>(std::popcount(lanes));
  for (std::uint64_t skip = (next_random() >> 32) % num_lanes; skip > 0; --skip) {
    lanes &= lanes - 1;
  }
  return std::countr_zero(lanes) & 31;
}

inline int Multiprocessor::choose_warp() {
  return choose_lane(runnable_warps_);
}

inline int Multiprocessor::choose_thread(bool stay_in_warp) {
  // Staying keeps 32 stacks hot. In random order any warp may be next.
  const int here = thread_ / 32;
  if (stay_in_warp && order_ != Order::kRandom && warps_[here].runnable() != 0) {
    return here * 32 + choose_lane(warps_[here].runnable());
  }
  if (runnable_warps_ == 0) {
    return kNoThread;
  }
  const int warp = choose_warp();
  return warp * 32 + choose_lane(warps_[warp].runnable());
}

inline void Multiprocessor::enter_thread(int thread) {
  thread_ = thread;
  threadIdx = coordinates_[thread];
  warp_result = &results_[thread];
  Warp& warp = warps_[thread / 32];
  const unsigned others = ~(1u << thread % 32);
  warp.ready &= others;
  warp.unstarted &= others;
  if (warp.runnable() == 0) {
    runnable_warps_ &= ~(1u << thread / 32);
  }
}

inline Fiber& Multiprocessor::fiber_for(int thread) {
  const Warp& warp = warps_[thread / 32];
  if ((warp.unstarted >> thread % 32 & 1u) == 0) {
    return *fiber_of_[thread];
  }
  if (!kCarryLanes) {
    return stacks_.fiber(thread);
  }
  // At most one fiber a started thread exists, so there is an idle one or room for another.
  return num_idle_ > 0 ? *idle_[--num_idle_] : stacks_.make_fiber();
}

inline Switch Multiprocessor::leave_for(int thread) {
  Fiber& next = fiber_for(thread);
  enter_thread(thread);
  if (!kCarryLanes && next.race_fiber == nullptr) {
    next.race_fiber = create_race_fiber();  // late: the detector takes long to make one
  }
  Context* const from = &fiber_->context;
  fiber_ = &next;
  return {from, &next.context};
}

}  // namespace simt::detail
