#pragma once

#include "engine/step_clock.h"
#include "worker/thread_costs.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace rigel {

struct StepBenchCase {
  std::int32_t num_rows = 1;
  std::int32_t context = 1024;  // tokens of every row when the measurement begins
  std::size_t num_timed = 400;
  std::size_t num_counted = 1000;  // steps whose allocations, locks and system calls are counted
  int steps_per_launch = 1;
  bool one_step_ahead = true;  // false: a step is launched when the one in front has been read
  bool preplan = true;         // in turn: the next step is planned while the device has this one
};

/// What a steady decode step costs the worker thread.
struct StepCost {
  double host_us = 0.0;  // without waiting
  double best_us =
      0.0;  // the same over the fastest tenth of the steps: the machine left them alone
  std::array<double, kNumStepPhases>
      phase_us{};        // by StepPhase; their sum without the wait is host_us
  double idle_us = 0.0;  // in turn: the device's, from a step's completion to the next launch
  ThreadCosts costs;     // of all counted steps together
  bool counts_syscalls = false;  // false: costs.syscalls says nothing here
  std::string device;            // "null" or a GPU's name
};

/// Runs `num_rows` requests of a synthetic model through a worker, its engine and its dispatcher on a device that computes
/// nothing (on CUDA: on the GPU), and measures decode steps in which every row takes part. Rows are at different places in
/// their pages. Times are means over the middle fifth of the timed steps, ordered by their total, so that a step in which the
/// thread lost its core does not count. Throws DeviceError, and std::runtime_error where a request fails.
[[nodiscard]] StepCost measure_step(const StepBenchCase& what);

}  // namespace rigel
