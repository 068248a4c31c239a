#include "simt/multiprocessor.h"
#include "simt/sanitizer.h"
#include "simt/scheduler.h"

#include <bit>
#include <cstring>

namespace simt::detail {

namespace {

bool same_site(Site a, Site b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

}  // namespace

Switch Multiprocessor::wait_for_others(bool stay_in_warp) {
  const int mine = thread_;
  fiber_of_[mine] = fiber_;
  const int next = choose_thread(stay_in_warp);
  if (next == kNoThread) [[unlikely]] {
    fail({.kind = FaultKind::kDeadlock});
  }
  if (next == mine) {
    enter_thread(mine);
    return {nullptr, nullptr};
  }
  return leave_for(next);
}

Switch Multiprocessor::arrive_at_barrier(Site site) {
  if (num_at_barrier_ == 0) {
    barrier_site_ = site;
  } else if (!same_site(site, barrier_site_)) [[unlikely]] {
    fail({.kind = FaultKind::kBarrierSites,
          .site = site,
          .other_site = barrier_site_,
          .other = num_at_barrier_});
  }
  if (num_done_ > 0 && strict_exit_) [[unlikely]] {
    fail({.kind = FaultKind::kBarrierAfterReturn, .site = site, .other = num_done_});
  }
  fiber_->sync_object = &barrier_sync_[barrier_turn_];
  race_release(fiber_->sync_object);
  warps_[thread_ / 32].at_barrier |= 1u << thread_ % 32;
  ++num_at_barrier_;
  if (num_at_barrier_ + num_done_ < num_threads_) {
    return wait_for_others(true);
  }
  release_barrier();
  return wait_for_others(false);
}

void Multiprocessor::release_barrier() {
  num_at_barrier_ = 0;
  barrier_turn_ ^= 1;
  for (int index = 0; index < num_warps_; ++index) {
    Warp& warp = warps_[index];
    if (warp.at_barrier != 0) {
      warp.ready |= warp.at_barrier;
      warp.at_barrier = 0;
      runnable_warps_ |= 1u << index;
    }
  }
}

Switch Multiprocessor::arrive_at_warp(WarpOperation operation, LaneOperand operand, unsigned mask,
                                      Site site) {
  Warp& warp = warps_[thread_ / 32];
  WarpGroup& group = join_group(warp, operation, mask, site);
  operands_[thread_] = operand.value;
  arguments_[thread_] = static_cast<std::uint8_t>(operand.argument);
  fiber_->sync_object = &group.sync[group.turn];
  race_release(fiber_->sync_object);
  const unsigned absent = strict_exit_ ? 0 : warp.done | ~warp.exists;
  if ((group.arrived | absent | ~group.mask) == ~0u) {
    complete_group(warp, group);
  }
  return wait_for_others(true);
}

// The group that the running lane belongs to, with the lane in it. Groups of overlapping masks may be open at once (lanes
// 16 to 31 are already at the full-warp shuffle behind a branch in which lanes 0 to 15 shuffle among themselves), but two
// that wait for each other's lanes are a fault.
WarpGroup& Multiprocessor::join_group(Warp& warp, WarpOperation operation, unsigned mask,
                                      Site site) {
  const unsigned bit = 1u << thread_ % 32;
  if ((mask & bit) == 0) [[unlikely]] {
    fail({.kind = FaultKind::kLaneOutsideMask, .site = site, .operation = operation, .mask = mask});
  }
  WarpGroup* joined = nullptr;
  for (unsigned live = warp.live_groups; live != 0; live &= live - 1) {
    WarpGroup& group = warp.groups[std::countr_zero(live)];
    if (group.mask == mask && group.operation == operation && same_site(group.site, site)) {
      joined = &group;
    }
  }
  if (joined == nullptr) {
    joined = &warp.groups[std::countr_one(warp.live_groups)];
    open_group(warp, *joined, operation, mask, site);
  }
  joined->arrived |= bit;
  if ((warp.live_groups & (warp.live_groups - 1)) != 0) {
    check_other_groups(warp, *joined);
  }
  return *joined;
}

void Multiprocessor::check_other_groups(const Warp& warp, const WarpGroup& mine) {
  for (unsigned live = warp.live_groups; live != 0; live &= live - 1) {
    const WarpGroup& other = warp.groups[std::countr_zero(live)];
    if (&other != &mine && (other.mask & mine.arrived) != 0 && (mine.mask & other.arrived) != 0)
        [[unlikely]] {
      fail({.kind = FaultKind::kWarpMismatch,
            .site = mine.site,
            .other_site = other.site,
            .operation = mine.operation,
            .other_operation = other.operation,
            .mask = mine.mask,
            .other_mask = other.mask});
    }
  }
}

void Multiprocessor::open_group(Warp& warp, WarpGroup& group, WarpOperation operation,
                                unsigned mask, Site site) {
  const unsigned absent = mask & (warp.done | ~warp.exists);
  if (strict_exit_ && absent != 0) [[unlikely]] {
    fail({.kind = FaultKind::kWarpAfterReturn,
          .site = site,
          .operation = operation,
          .mask = mask,
          .other_mask = absent});
  }
  warp.live_groups |= 1u << (&group - warp.groups);
  group.mask = mask;
  group.arrived = 0;
  group.site = site;
  group.operation = operation;
}

void Multiprocessor::complete_group(Warp& warp, WarpGroup& group) {
  compute(warp, group);
  group.turn ^= 1;
  warp.live_groups &= ~(1u << (&group - warp.groups));
  warp.ready |= group.arrived;
  runnable_warps_ |= 1u << (&warp - warps_);
}

// A thread is about to return: nobody may be waiting for it.
void Multiprocessor::check_exit(const Warp& warp, unsigned lane_bit) {
  if (!strict_exit_) {
    return;
  }
  if (num_at_barrier_ > 0) [[unlikely]] {
    fail({.kind = FaultKind::kReturnedBeforeBarrier,
          .other_site = barrier_site_,
          .other = num_at_barrier_});
  }
  for (unsigned live = warp.live_groups; live != 0; live &= live - 1) {
    const WarpGroup& group = warp.groups[std::countr_zero(live)];
    if ((group.mask & lane_bit) != 0) [[unlikely]] {
      fail({.kind = FaultKind::kReturnedBeforeWarp,
            .other_site = group.site,
            .other_operation = group.operation,
            .other_mask = group.arrived});
    }
  }
}

// Without strict exit a thread's return may be what the others waited for.
void Multiprocessor::release_after_exit(Warp& warp) {
  if (num_at_barrier_ > 0 && num_at_barrier_ + num_done_ == num_threads_) {
    release_barrier();
  }
  for (unsigned live = warp.live_groups; live != 0; live &= live - 1) {
    WarpGroup& group = warp.groups[std::countr_zero(live)];
    if ((group.arrived | warp.done | ~warp.exists | ~group.mask) == ~0u) {
      complete_group(warp, group);
    }
  }
}

}  // namespace simt::detail
