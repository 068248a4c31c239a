#pragma once

#include "worker/service.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace rigel {

/// Values that many threads put in and one thread takes out, all at once. Thread: put any, the rest the owner.
template <class T>
class Mailbox {
 public:
  void put(T value) {
    {
      const std::lock_guard lock(mutex_);
      values_.push_back(std::move(value));
    }
    arrived_.notify_one();
  }

  /// Moves what has arrived to `out`, in order of arrival, without waiting.
  void take(std::vector<T>& out) {
    out.clear();
    const std::lock_guard lock(mutex_);
    std::swap(out, values_);
  }

  /// The same, after waiting until something has arrived.
  void wait_and_take(std::vector<T>& out) {
    out.clear();
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return !values_.empty(); });
    std::swap(out, values_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<T> values_;
};

}  // namespace rigel
