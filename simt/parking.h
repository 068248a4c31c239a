#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace simt {

/// Tells the core that this is a spin loop.
inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// A lock for a handful of instructions. Never held across a wait.
class SpinLock {
 public:
  void lock() {
    for (int turn = 1; locked_.exchange(true, std::memory_order_acquire); ++turn) {
      while (locked_.load(std::memory_order_relaxed)) {
        // The holder may have lost its core: spinning on would keep it from coming back.
        if (turn++ % 64 == 0) {
          std::this_thread::yield();
        }
        spin_pause();
      }
    }
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> locked_{false};
};

/// Where threads wait until a condition over sequentially consistent atomics holds: they spin for 20 us, then sleep.
/// Whoever makes the condition true (by a seq_cst store) calls `wake_all` afterwards; that costs one load while nobody sleeps.
/// Thread: any.
class Parking {
 public:
  template <class Condition>
  void wait(Condition condition) {
    if (condition() || spin(condition)) {
      return;
    }
    std::unique_lock lock(mutex_);
    num_parked_.fetch_add(1, std::memory_order_seq_cst);
    woken_.wait(lock, condition);
    num_parked_.fetch_sub(1, std::memory_order_seq_cst);
  }

  void wake_all() {
    if (num_parked_.load(std::memory_order_seq_cst) == 0) {
      return;
    }
    { const std::lock_guard lock(mutex_); }
    woken_.notify_all();
  }

 private:
  template <class Condition>
  static bool spin(Condition& condition) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::microseconds(20);
    do {
      for (int turn = 0; turn < 32; ++turn) {
        if (condition()) {
          return true;
        }
        spin_pause();
      }
    } while (std::chrono::steady_clock::now() < give_up);
    return false;
  }

  std::mutex mutex_;
  std::condition_variable woken_;
  std::atomic<int> num_parked_{0};
};

}  // namespace simt
