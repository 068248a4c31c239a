#pragma once

#include "worker/sleeper.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

namespace rigel {

/// Values that many threads put in and one thread takes out, all at once. No lock: letters form a list whose newest is
/// swapped in by the sender and out by the owner, who turns the list round. Looking into an empty mailbox costs one load.
/// Thread: put any, the rest the owner.
template <class T>
class Mailbox {
 public:
  /// `sleeper` is where the owner sleeps; it outlives the mailbox.
  explicit Mailbox(Sleeper& sleeper) : sleeper_(sleeper) {}
  ~Mailbox() {
    std::vector<T> unread;
    take(unread);
  }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  void put(T value) {
    auto* letter = std::make_unique<Letter>(Letter{std::move(value), nullptr}).release();
    letter->older = newest_.load(std::memory_order_relaxed);
    while (!newest_.compare_exchange_weak(letter->older, letter, std::memory_order_seq_cst,
                                          std::memory_order_relaxed)) {
    }
    sleeper_.wake();
  }

  [[nodiscard]] bool empty() const { return newest_.load(std::memory_order_seq_cst) == nullptr; }

  /// Moves what has arrived to `out`, in order of arrival, without waiting.
  void take(std::vector<T>& out) {
    out.clear();
    if (empty()) {
      return;
    }
    std::unique_ptr<Letter> letter(newest_.exchange(nullptr, std::memory_order_seq_cst));
    while (letter != nullptr) {
      out.push_back(std::move(letter->value));
      letter.reset(letter->older);
    }
    std::ranges::reverse(out);
  }

  /// The same, after sleeping until something has arrived.
  void wait_and_take(std::vector<T>& out) {
    sleeper_.sleep_until([this] { return !empty(); });
    take(out);
  }

 private:
  struct Letter {
    T value;
    Letter* older;
  };

  Sleeper& sleeper_;
  std::atomic<Letter*> newest_{nullptr};
};

}  // namespace rigel
