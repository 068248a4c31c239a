#pragma once

#include "worker/thread_costs.h"

#include <atomic>
#include <cstdint>

namespace rigel {

/// Where one thread sleeps until another has something for it. While the owner is awake, a wake-up costs one load; nobody
/// takes a lock. A wake-up is never lost: the owner says that it sleeps before it looks for work a last time, and whoever
/// brings work looks whether the owner sleeps after bringing it.
class Sleeper {
 public:
  /// Sleeps until `has_work()`, which must read a seq_cst atomic. Thread: the owner.
  template <class HasWork>
  void sleep_until(HasWork has_work) {
    if (has_work()) {
      return;
    }
    while (true) {
      asleep_.store(1, std::memory_order_seq_cst);
      if (has_work()) {
        break;
      }
      const CostsApart apart;
      asleep_.wait(1, std::memory_order_seq_cst);
    }
    asleep_.store(0, std::memory_order_relaxed);
  }

  /// Call after the seq_cst store that makes `has_work()` true. One system call where the owner sleeps. Thread: any.
  void wake() {
    if (asleep_.load(std::memory_order_seq_cst) != 0 &&
        asleep_.exchange(0, std::memory_order_seq_cst) != 0) {
      const CostsApart apart;
      asleep_.notify_one();
    }
  }

 private:
  std::atomic<std::int32_t> asleep_{0};
};

}  // namespace rigel
