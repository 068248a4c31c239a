#pragma once

#include <cstdint>

namespace simt::detail {

/// The cp.async copies that threads of a block have issued and not waited for.
class AsyncCopies {
 public:
  /// Copies one thread may have in flight.
  static constexpr int kMaxPending = 64;

  struct Copy {
    void* to;
    const void* from;  // null: zeros
    int group;
  };

  void begin_block() {
    if (used_) {
      for (Queue& queue : queues_) {
        queue = Queue{};
      }
      used_ = false;
    }
  }

  /// False when the thread has too many in flight.
  [[nodiscard]] bool issue(int thread, void* to, const void* from) {
    Queue& queue = queues_[thread];
    if (queue.end - queue.begin == kMaxPending) {
      return false;
    }
    used_ = true;
    copies_[thread][queue.end++ % kMaxPending] = {to, from, queue.group};
    return true;
  }
  void commit(int thread) {
    used_ = true;
    ++queues_[thread].group;
  }
  /// Hands the copies of all but the newest `num_newest` committed groups to `land`, in the order of their issue.
  template <class Land>
  void wait(int thread, int num_newest, Land land) {
    Queue& queue = queues_[thread];
    while (queue.begin != queue.end) {
      const Copy& copy = copies_[thread][queue.begin % kMaxPending];
      if (copy.group >= queue.group - num_newest) {
        break;
      }
      land(copy);
      ++queue.begin;
    }
  }

 private:
  struct Queue {
    unsigned begin = 0;
    unsigned end = 0;
    int group = 0;
  };

  bool used_ = true;  // so that the first block clears the queues
  Queue queues_[1024];
  Copy copies_[1024][kMaxPending];
};

}  // namespace simt::detail
