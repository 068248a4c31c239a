#pragma once

#include "simt/async_copies.h"
#include "simt/fault.h"
#include "simt/fiber.h"
#include "simt/kernel_call.h"
#include "simt/kernel_calls.h"
#include "simt/launch_plan.h"
#include "simt/options.h"
#include "simt/shared_arena.h"
#include "simt/status.h"

#include <cstdint>
#include <memory>

namespace simt::detail {

/// Lanes that wait for each other in a warp operation: those of `mask`.
struct WarpGroup {
  unsigned mask;
  unsigned arrived;
  Site site;
  WarpOperation operation;
  // ThreadSanitizer orders threads through these two, in turns: with one, a late leaver would also acquire what early
  // leavers did next and races would be missed.
  unsigned turn;
  char sync[2];
};

struct Warp {
  // Bit = lane. A lane is in at most one of the first three; a lane that waits is in none of them.
  unsigned ready;
  unsigned unstarted;
  unsigned done;
  unsigned at_barrier;
  unsigned exists;
  unsigned live_groups;  // bit = index of a group with arrived lanes
  WarpGroup groups[32];

  [[nodiscard]] unsigned runnable() const { return ready | unstarted; }
};

/// One OS thread's streaming multiprocessor: runs blocks, one after the other, each thread of a block on a fiber.
///
/// Lane carrying: a fiber takes threads that have not started one after another and stays only with one that waits, so a
/// kernel without barriers uses one fiber and no switch. Thread: the one that made it.
class Multiprocessor {
 public:
  /// The calling OS thread's, made at first use and destroyed with the thread.
  static Multiprocessor& of_this_thread();

  Multiprocessor();
  Multiprocessor(const Multiprocessor&) = delete;
  Multiprocessor& operator=(const Multiprocessor&) = delete;

  /// Prepares for blocks of a launch. The call must outlive them; the plan is valid.
  void begin_launch(const KernelCall& call, const Options& options);
  /// Runs one block. On a fault fills `status`, drops the block and is ready for the next launch.
  bool run_block(uint3 block_index, Status& status);
  void end_launch();

  // What kernel text reaches through kernel_calls.h.
  Switch arrive_at_barrier(Site site);
  Switch arrive_at_warp(WarpOperation operation, LaneOperand operand, unsigned mask, Site site);
  void wait_told(Switch decision);
  void* shared_array(const void* key, std::size_t num_bytes, Site site);
  void* dynamic_shared() { return arena_.dynamic(); }
  void issue_async_copy(void* to, const void* from, Site site);
  void commit_async_copies() { copies_->commit(thread_); }
  void note_predecessor_wait() { ++num_predecessor_waits_; }
  void wait_async_copies(int num_newest_groups);
  [[noreturn]] void fail(Fault fault);

  /// The life of a fiber.
  [[noreturn]] void run_fiber();

 private:
  static constexpr int kMaxThreads = kMaxFibers;
  static constexpr int kMaxWarps = kMaxThreads / 32;
  static constexpr int kNoThread = -1;

  // Scheduler (multiprocessor_cpu.cc).
  void set_block_shape(dim3 block);
  void begin_block(uint3 block_index);
  [[nodiscard]] int choose_warp();
  [[nodiscard]] int choose_lane(unsigned lanes);
  [[nodiscard]] int choose_thread(bool stay_in_warp);
  void enter_thread(int thread);
  Fiber& fiber_for(int thread);
  Switch leave_for(int thread);
  Switch finish_thread();
  void abandon_block(Status& status);
  void acquire_abandoned() const;
  void describe_waiting_threads(Status& status) const;
  std::uint64_t next_random();

  // Rendezvous (rendezvous_cpu.cc).
  [[nodiscard]] Switch wait_for_others(bool stay_in_warp);
  void check_exit(const Warp& warp, unsigned lane_bit);
  void release_after_exit(Warp& warp);
  void release_barrier();
  WarpGroup& join_group(Warp& warp, WarpOperation operation, unsigned mask, Site site);
  void check_other_groups(const Warp& warp, const WarpGroup& mine);
  void open_group(Warp& warp, WarpGroup& group, WarpOperation operation, unsigned mask, Site site);
  void complete_group(Warp& warp, WarpGroup& group);

  // Results of warp operations (warp_operations_cpu.cc).
  void compute(const Warp& warp, const WarpGroup& group);
  void shuffle(int first_thread, const WarpGroup& group);
  void match_any(int first_thread, const WarpGroup& group);
  void load_matrices(int first_thread);      // matrix_cpu.cc
  void multiply_matrices(int first_thread);  // matrix_cpu.cc
  template <class T, class Combine>
  void reduce(int first_thread, Combine combine);

  [[nodiscard]] int first_thread_of(const Warp& warp) const {
    return static_cast<int>(&warp - warps_) * 32;
  }

  // The block's state, hottest first.
  int thread_ = 0;  // linear index of the running thread
  Fiber* fiber_ = nullptr;
  unsigned runnable_warps_ = 0;
  Order order_ = Order::kAscending;
  bool strict_exit_ = true;
  int num_threads_ = 0;
  int num_done_ = 0;
  int num_at_barrier_ = 0;
  int num_predecessor_waits_ = 0;
  unsigned barrier_turn_ = 0;
  Site barrier_site_{"", 0};
  int num_idle_ = 0;
  std::uint64_t random_ = 1;

  KernelCall call_{};
  const Options* options_ = nullptr;
  Fault fault_;
  Fiber main_{};
  dim3 block_shape_{0, 0, 0};
  int num_warps_ = 0;

  // ThreadSanitizer's objects: start and end of a block, and the barrier in turns.
  char start_sync_ = 0;
  char end_sync_ = 0;
  char barrier_sync_[2] = {};

  Warp warps_[kMaxWarps];
  uint3 coordinates_[kMaxThreads];
  Fiber* fiber_of_[kMaxThreads];
  Fiber* idle_[kMaxThreads];
  std::uint64_t operands_[kMaxThreads];
  std::uint64_t results_[kMaxThreads];
  std::uint8_t arguments_[kMaxThreads];

  FiberStacks stacks_;
  SharedArena arena_;
  // Two megabytes of address space, touched by kernels that use cp.async only.
  std::unique_ptr<AsyncCopies> copies_;
};

}  // namespace simt::detail
