#include "simt/multiprocessor.h"
#include "simt/sanitizer.h"
#include "simt/scheduler.h"

#include <pthread.h>

#include <bit>
#include <cstdlib>
#include <memory>

constinit thread_local uint3 threadIdx{0, 0, 0};
constinit thread_local uint3 blockIdx{0, 0, 0};
constinit thread_local dim3 blockDim{0, 0, 0};
constinit thread_local dim3 gridDim{0, 0, 0};

namespace simt::detail {

constinit thread_local std::uint64_t* warp_result = nullptr;

namespace {

// The registers of a multiprocessor are its OS thread's: the only mutable state that kernel text finds by name.
constinit thread_local Multiprocessor* current = nullptr;

// A well mixed number of two: the blocks' random orders must not be shifted copies of each other.
std::uint64_t mix(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t x = seed + 0x9e3779b97f4a7c15u * (index + 1);
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return (x ^ x >> 31) | 1;
}

}  // namespace

Switch arrive_at_barrier(Site site) {
  return current->arrive_at_barrier(site);
}

Switch arrive_at_warp(WarpOperation operation, LaneOperand operand, unsigned mask, Site site) {
  return current->arrive_at_warp(operation, operand, mask, site);
}

void wait_told(Switch decision) {
  current->wait_told(decision);
}

void* shared_array(const void* key, std::size_t num_bytes, Site site) {
  return current->shared_array(key, num_bytes, site);
}

void* dynamic_shared() {
  return current->dynamic_shared();
}

void issue_async_copy(void* to, const void* from, Site site) {
  current->issue_async_copy(to, from, site);
}

void commit_async_copies() {
  current->commit_async_copies();
}

void wait_async_copies(int num_newest_groups) {
  current->wait_async_copies(num_newest_groups);
}

void note_predecessor_wait() {
  current->note_predecessor_wait();
}

void fail_alignment(const void* address, unsigned num_bytes, Site site) {
  Fault fault{.kind = FaultKind::kMisaligned, .site = site};
  fault.address = address;
  fault.num_bytes = num_bytes;
  current->fail(fault);
}

extern "C" [[noreturn]] void simt_fiber_main() {
  current->run_fiber();
}

Multiprocessor& Multiprocessor::of_this_thread() {
  // Held by a pointer: 100 KB of thread-local storage would be paid for by threads that never run a kernel.
  thread_local const std::unique_ptr<Multiprocessor> mine = std::make_unique<Multiprocessor>();
  return *mine;
}

Multiprocessor::Multiprocessor() : copies_(new AsyncCopies) {
  main_.race_fiber = current_race_fiber();
#if defined(SIMT_ASAN)
  pthread_attr_t attributes;
  void* bottom = nullptr;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &bottom, &main_.stack_bytes);
  pthread_attr_destroy(&attributes);
  main_.stack = static_cast<std::byte*>(bottom);
#endif
}

void Multiprocessor::begin_launch(const KernelCall& call, const Options& options) {
  current = this;
  call_ = call;
  options_ = &options;
  order_ = options.order;
  strict_exit_ = options.strict_exit;
  set_block_shape(call.plan->block);
  arena_.begin_launch(call.plan->shared_bytes, options.poison);
  blockDim = call.plan->block;
  gridDim = call.plan->grid;
}

void Multiprocessor::set_block_shape(dim3 block) {
  if (block.x == block_shape_.x && block.y == block_shape_.y && block.z == block_shape_.z) {
    return;
  }
  block_shape_ = block;
  num_threads_ = static_cast<int>(block.x * block.y * block.z);
  num_warps_ = (num_threads_ + 31) / 32;
  int thread = 0;
  for (unsigned z = 0; z < block.z; ++z) {
    for (unsigned y = 0; y < block.y; ++y) {
      for (unsigned x = 0; x < block.x; ++x) {
        coordinates_[thread++] = {x, y, z};
      }
    }
  }
  for (int warp = 0; warp < num_warps_; ++warp) {
    const int lanes = num_threads_ - warp * 32;
    warps_[warp].exists = lanes >= 32 ? ~0u : (1u << lanes) - 1;
  }
}

void Multiprocessor::begin_block(uint3 block_index) {
  const dim3 grid = call_.plan->grid;
  blockIdx = block_index;
  for (int index = 0; index < num_warps_; ++index) {
    Warp& warp = warps_[index];
    warp.unstarted = warp.exists;
    warp.ready = warp.done = warp.at_barrier = warp.live_groups = 0;
  }
  runnable_warps_ = num_warps_ == 32 ? ~0u : (1u << num_warps_) - 1;
  num_done_ = 0;
  num_at_barrier_ = 0;
  num_predecessor_waits_ = 0;
  if (order_ == Order::kRandom) {
    const std::uint64_t row = block_index.y + std::uint64_t{grid.y} * block_index.z;
    random_ = mix(options_->seed, block_index.x + grid.x * row);
  }
  if (options_->race_blocks) {
    arena_.forget();
    stacks_.forget();
    num_idle_ = 0;
  }
  arena_.begin_block();
  copies_->begin_block();
}

bool Multiprocessor::run_block(uint3 block_index, Status& status) {
  begin_block(block_index);
  thread_ = 0;
  fiber_ = &main_;
  race_release(&start_sync_);
  wait_told(leave_for(choose_thread(false)));
  if (call_.plan->programmatic && num_predecessor_waits_ != num_threads_ &&
      fault_.kind == FaultKind::kNone) [[unlikely]] {
    fault_ = {.kind = FaultKind::kUnordered};
    fault_.other = std::abs(num_threads_ - num_predecessor_waits_);
  }
  if (fault_.kind != FaultKind::kNone) [[unlikely]] {
    abandon_block(status);
    return false;
  }
  if (!options_->race_blocks) {
    race_acquire(&end_sync_);
  }
  return true;
}

void Multiprocessor::end_launch() {
  race_acquire(&end_sync_);
}

void Multiprocessor::run_fiber() {
#if defined(SIMT_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  for (;;) {
    race_acquire(&start_sync_);
    call_.body(call_.arguments);
    const Switch decision = finish_thread();
    if (kCarryLanes && decision.from == nullptr) {
      continue;  // the next thread has been entered on this fiber
    }
    wait_told(decision);
  }
}

Switch Multiprocessor::finish_thread() {
  Warp& warp = warps_[thread_ / 32];
  const unsigned bit = 1u << thread_ % 32;
  check_exit(warp, bit);
  race_release(&end_sync_);
  warp.done |= bit;
  ++num_done_;
  if (!strict_exit_) {
    release_after_exit(warp);
  }
  fiber_->sync_object = nullptr;
  Fiber* const mine = fiber_;
  if (num_done_ == num_threads_) {
    if (kCarryLanes) {
      idle_[num_idle_++] = mine;
    }
    fiber_ = &main_;
    return {&mine->context, &main_.context};
  }
  const int next = choose_thread(true);
  if (next == kNoThread) {
    fail({.kind = FaultKind::kDeadlock});
  }
  if (!kCarryLanes) {
    return leave_for(next);
  }
  if ((warps_[next / 32].unstarted >> next % 32 & 1u) != 0) {
    enter_thread(next);
    return {nullptr, nullptr};
  }
  const Switch decision = leave_for(next);
  idle_[num_idle_++] = mine;
  return decision;
}

void Multiprocessor::wait_told(Switch decision) {
  if (decision.from != nullptr) {
    // A context is the first member of its fiber.
    Fiber* const from = reinterpret_cast<Fiber*>(decision.from);
#if defined(SIMT_SANITIZED)
    Fiber* const to = reinterpret_cast<Fiber*>(decision.to);
#endif
#if defined(SIMT_ASAN)
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_bytes);
#endif
#if defined(SIMT_TSAN)
    __tsan_switch_to_fiber(to->race_fiber, 1);  // 1: a switch alone orders nothing
#endif
    switch_context({&from->context, decision.to});
#if defined(SIMT_ASAN)
    __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
#endif
  }
  race_acquire(fiber_->sync_object);
}

void* Multiprocessor::shared_array(const void* key, std::size_t num_bytes, Site site) {
  std::byte* const memory = arena_.slot(key, num_bytes);
  if (memory == nullptr) [[unlikely]] {
    Fault fault{.kind = FaultKind::kSharedOverflow, .site = site};
    fault.num_bytes = static_cast<unsigned>(num_bytes);
    fail(fault);
  }
  return memory;
}

void Multiprocessor::fail(Fault fault) {
  fault.thread = thread_;
  fault_ = fault;
  race_release(&end_sync_);
  Fiber* const mine = fiber_;
  fiber_ = &main_;
#if defined(SIMT_ASAN)
  __sanitizer_start_switch_fiber(nullptr, main_.stack, main_.stack_bytes);  // null: never again
#endif
#if defined(SIMT_TSAN)
  __tsan_switch_to_fiber(main_.race_fiber, 1);
#endif
  switch_context({&mine->context, &main_.context});
  __builtin_unreachable();
}

void Multiprocessor::abandon_block(Status& status) {
  const uint3 block = blockIdx;
  status.append("kernel %s: ", call_.name);
  describe(fault_, coordinates_[fault_.thread], status);
  if (fault_.kind == FaultKind::kDeadlock) {
    describe_waiting_threads(status);
  }
  status.append(" [block (%u,%u,%u)]", block.x, block.y, block.z);
  fault_ = {};
  acquire_abandoned();
  stacks_.restart();
  num_idle_ = 0;
}

// What abandoned threads did comes before whatever follows the launch: acquires all that they may have released.
void Multiprocessor::acquire_abandoned() const {
#if defined(SIMT_TSAN)
  race_acquire(&end_sync_);
  race_acquire(&barrier_sync_[0]);
  race_acquire(&barrier_sync_[1]);
  for (int index = 0; index < num_warps_; ++index) {
    for (const WarpGroup& group : warps_[index].groups) {
      race_acquire(&group.sync[0]);
      race_acquire(&group.sync[1]);
    }
  }
#endif
}

void Multiprocessor::describe_waiting_threads(Status& status) const {
  if (num_at_barrier_ > 0) {
    status.append("; %d threads wait at __syncthreads %s:%d", num_at_barrier_,
                  file_of(barrier_site_), barrier_site_.line);
  }
  for (int index = 0; index < num_warps_; ++index) {
    for (unsigned live = warps_[index].live_groups; live != 0; live &= live - 1) {
      const WarpGroup& group = warps_[index].groups[std::countr_zero(live)];
      status.append("; warp %d lanes %08x wait in %s at %s:%d for lanes %08x", index, group.arrived,
                    name_of(group.operation), file_of(group.site), group.site.line,
                    group.mask & ~group.arrived);
    }
  }
}

}  // namespace simt::detail
