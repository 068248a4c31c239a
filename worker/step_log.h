#pragma once

#include "engine/step_clock.h"
#include "worker/thread_costs.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace rigel {

/// One round of the worker's loop.
struct StepSample {
  std::size_t num_lanes = 0;  // of the step that was launched; 0: none was
  bool decodes_only = false;  // every lane was a decode lane
  StepClock::Seconds seconds{};
  float idle_seconds =
      0.0f;           // in turn: from the completion of the step in front to the end of this launch
  ThreadCosts costs;  // of the worker thread so far, this round included
};

/// Keeps what steady steps cost the worker: rounds that launch a decode step of `num_lanes` lanes. The first ones are timed as
/// they are, during the later ones system calls are counted. Thread: the worker, until `wait` returns.
class StepLog {
 public:
  /// The first `num_skipped` such rounds are not kept.
  StepLog(std::size_t num_lanes, std::size_t num_skipped, std::size_t num_timed,
          std::size_t num_counted);

  void record(const StepSample& sample);
  /// Nothing more will be recorded: ends what record may have begun on the worker thread.
  void close();
  /// The log will not get full: whoever waits for it waits no longer. Thread: any.
  void give_up();

  /// Blocks until the log is full or closed; false where it was closed before. Thread: any but the worker.
  [[nodiscard]] bool wait() const;
  [[nodiscard]] std::span<const StepSample> timed() const;
  [[nodiscard]] std::span<const StepSample> counted() const;
  /// False where this kernel cannot count system calls.
  [[nodiscard]] bool counts_syscalls() const { return counts_syscalls_; }

 private:
  enum class State : std::int32_t { kOpen, kFull, kClosed };

  std::size_t num_lanes_;
  std::size_t num_skipped_;
  std::size_t num_timed_;
  std::size_t capacity_;
  std::vector<StepSample> samples_;
  std::optional<SyscallCount> syscall_count_;
  bool counts_syscalls_ = false;
  std::atomic<State> state_{State::kOpen};
};

}  // namespace rigel
