#include "worker/step_log.h"

namespace rigel {

StepLog::StepLog(std::size_t num_lanes, std::size_t num_skipped, std::size_t num_timed,
                 std::size_t num_counted)
    : num_lanes_(num_lanes),
      num_skipped_(num_skipped),
      num_timed_(num_timed),
      // One sample more: what the counted turns cost is the difference to the one before them.
      capacity_(num_timed + 1 + num_counted) {
  samples_.reserve(capacity_);
}

void StepLog::record(const StepSample& sample) {
  if (state_.load(std::memory_order_relaxed) != State::kOpen || !sample.decodes_only ||
      sample.num_lanes != num_lanes_) {
    return;
  }
  if (num_skipped_ > 0) {
    --num_skipped_;
    return;
  }
  samples_.push_back(sample);
  if (samples_.size() == num_timed_ + 1) {
    syscall_count_.emplace();
    counts_syscalls_ = syscall_count_->works();
    samples_.back().costs = thread_costs();
  }
  if (samples_.size() == capacity_) {
    syscall_count_.reset();
    state_.store(State::kFull, std::memory_order_release);
    state_.notify_all();
  }
}

void StepLog::close() {
  syscall_count_.reset();
  give_up();
}

void StepLog::give_up() {
  State open = State::kOpen;
  if (state_.compare_exchange_strong(open, State::kClosed, std::memory_order_release)) {
    state_.notify_all();
  }
}

bool StepLog::wait() const {
  state_.wait(State::kOpen, std::memory_order_acquire);
  return state_.load(std::memory_order_acquire) == State::kFull;
}

std::span<const StepSample> StepLog::timed() const {
  return std::span(samples_).first(num_timed_);
}

std::span<const StepSample> StepLog::counted() const {
  return std::span(samples_).subspan(num_timed_);
}

}  // namespace rigel
