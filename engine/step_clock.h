#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace rigel {

/// What the worker thread is doing, in the order of a step.
enum class StepPhase : std::uint8_t {
  kBuild,    // letters, admission of requests, the schedule, the step's lanes
  kDeclare,  // which streams grow, who samples
  kAdmit,    // pages
  kPlan,     // columns of positions, pages, sampling
  kSplice,   // which lanes take their token from the device; the one copy of all columns
  kForward,  // the model's own enqueues
  kLaunch,   // outputs to the host's ring, the event behind them
  kSettle,   // what was consumed is consumed, memory that waited is free, who stops
  kRoute,    // tokens to requests, one message to the dispatcher
  kWait,     // for the device, for the dispatcher or for letters: no work
};
inline constexpr std::size_t kNumStepPhases = 10;

/// Divides the worker thread's time among the phases of a step. To change the phase costs one reading of the processor's time
/// stamp counter, which runs at one rate on every core. Thread: worker.
class StepClock {
 public:
  using Seconds = std::array<float, kNumStepPhases>;

  StepClock() : wall_start_(std::chrono::steady_clock::now()), start_(ticks()), since_(start_) {}

  void enter(StepPhase phase) {
    const std::uint64_t now = ticks();
    spent_[static_cast<std::size_t>(phase_)] += now - since_;
    since_ = now;
    phase_ = phase;
  }

  /// Seconds by phase since the last call; `now` is the time of day that says how long a tick is.
  [[nodiscard]] Seconds take(std::chrono::steady_clock::time_point now) {
    enter(phase_);
    const double wall = std::chrono::duration<double>(now - wall_start_).count();
    const double seconds_a_tick = since_ > start_ ? wall / static_cast<double>(since_ - start_) : 0;
    Seconds seconds;
    for (std::size_t phase = 0; phase < kNumStepPhases; ++phase) {
      seconds[phase] = static_cast<float>(static_cast<double>(spent_[phase]) * seconds_a_tick);
      spent_[phase] = 0;
    }
    return seconds;
  }

 private:
  static std::uint64_t ticks() {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
  }

  std::chrono::steady_clock::time_point wall_start_;
  std::uint64_t start_;
  std::uint64_t since_;
  StepPhase phase_ = StepPhase::kWait;
  std::array<std::uint64_t, kNumStepPhases> spent_{};
};

}  // namespace rigel
