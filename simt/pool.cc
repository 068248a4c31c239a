#include "simt/pool.h"

#include <chrono>

namespace simt {

namespace {

// ticket = generation (32 bits) | number of groups (16) | next group (16).
constexpr std::uint64_t kMaxGroups = 0xffff;

constexpr std::uint64_t make_ticket(std::uint64_t generation, std::uint64_t num_groups) {
  return generation << 32 | num_groups << 16;
}
constexpr std::uint32_t num_groups_of(std::uint64_t ticket) {
  return static_cast<std::uint32_t>(ticket >> 16 & kMaxGroups);
}
constexpr std::uint32_t next_group_of(std::uint64_t ticket) {
  return static_cast<std::uint32_t>(ticket & kMaxGroups);
}
constexpr bool has_group(std::uint64_t ticket) {
  return next_group_of(ticket) < num_groups_of(ticket);
}

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

constexpr auto kSpinTime = std::chrono::microseconds(20);

// Waits until `condition` holds, for at most kSpinTime. Reads the clock rarely: it costs as much as several polls.
template <class Condition>
bool spin_until(Condition condition) {
  constexpr int kPollsPerClockRead = 32;
  for (int poll = 0; poll < kPollsPerClockRead; ++poll) {
    if (condition()) {
      return true;
    }
    pause_cpu();
  }
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int poll = 0; poll < kPollsPerClockRead; ++poll) {
      if (condition()) {
        return true;
      }
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

}  // namespace

Pool::Pool(int num_threads) {
  threads_.reserve(num_threads > 1 ? static_cast<std::size_t>(num_threads - 1) : 0);
  for (int thread = 1; thread < num_threads; ++thread) {
    threads_.emplace_back([this] { serve(); });
  }
}

Pool::~Pool() {
  sleep_.stopping.store(true);
  sleep_.wake_count.fetch_add(1);
  sleep_.wake_count.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void Pool::run_job(int num_items, Function function, void* context) {
  // Nobody reads these fields now: the last job's groups are all done, and a new group can't be taken before the store below.
  const auto items = static_cast<std::uint64_t>(num_items);
  const std::uint64_t group_items = (items + kMaxGroups - 1) / kMaxGroups;
  const std::uint64_t num_groups = (items + group_items - 1) / group_items;
  function_ = function;
  context_ = context;
  num_items_ = num_items;
  group_items_ = static_cast<int>(group_items);
  progress_.groups_done.store(0, std::memory_order_relaxed);
  const std::uint64_t generation = (offer_.ticket.load(std::memory_order_relaxed) >> 32) + 1;
  offer_.ticket.store(make_ticket(generation, num_groups));  // sequentially consistent, as is:
  const int num_asleep = sleep_.num_asleep.load();
  if (num_asleep > 0) {
    sleep_.wake_count.fetch_add(1);
    if (num_groups > static_cast<std::uint64_t>(num_asleep)) {
      sleep_.wake_count.notify_all();
    } else {
      for (std::uint64_t helper = 1; helper < num_groups; ++helper) {
        sleep_.wake_count.notify_one();
      }
    }
  }

  while (take_and_run()) {
  }
  auto& done = progress_.groups_done;
  const auto all_done = [&] { return done.load(std::memory_order_acquire) == num_groups; };
  if (spin_until(all_done)) {
    return;
  }
  for (std::uint32_t seen = done.load(std::memory_order_acquire); seen != num_groups;
       seen = done.load(std::memory_order_acquire)) {
    done.wait(seen, std::memory_order_acquire);
  }
}

bool Pool::take_and_run() {
  std::uint64_t ticket = offer_.ticket.load(std::memory_order_acquire);
  do {
    if (!has_group(ticket)) {
      return false;
    }
  } while (!offer_.ticket.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                                std::memory_order_acquire));
  const int first = static_cast<int>(next_group_of(ticket)) * group_items_;
  const int end = num_items_ - first < group_items_ ? num_items_ : first + group_items_;
  for (int item = first; item < end; ++item) {
    function_(context_, item);
  }
  finish_group(num_groups_of(ticket));
  return true;
}

void Pool::finish_group(std::uint32_t num_groups) {
  const std::uint32_t done = progress_.groups_done.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (done == num_groups) {
    progress_.groups_done.notify_one();
  }
}

void Pool::serve() {
  while (wait_for_job()) {
    while (take_and_run()) {
    }
  }
}

// True when a group may be on offer, false when the pool is being destroyed.
bool Pool::wait_for_job() {
  const auto has_news = [this] {
    return has_group(offer_.ticket.load(std::memory_order_acquire)) ||
           sleep_.stopping.load(std::memory_order_relaxed);
  };
  if (!spin_until(has_news)) {
    const std::uint32_t seen = sleep_.wake_count.load();
    sleep_.num_asleep.fetch_add(1);
    // The caller stores the ticket and then looks for sleepers; we say that we sleep and then look at the ticket. Both in
    // one total order, so one of the two sees the other.
    if (!has_group(offer_.ticket.load()) && !sleep_.stopping.load()) {
      sleep_.wake_count.wait(seen);
    }
    sleep_.num_asleep.fetch_sub(1);
  }
  return !sleep_.stopping.load();
}

}  // namespace simt
