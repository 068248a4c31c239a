#pragma once

#include "engine/engine.h"
#include "engine/piecewise_runner.h"
#include "engine/step_clock.h"
#include "worker/service.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

namespace rigel {

class PiecewiseRunners;

/// A number that one thread writes and others read.
class Gauge {
 public:
  void set(std::int64_t value) { value_.store(value, std::memory_order_relaxed); }
  void add(std::int64_t amount) {
    value_.store(value_.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  [[nodiscard]] std::int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> value_{0};
};

/// A histogram that one thread fills and others read. `observe` costs a short scan and three plain stores.
class HistogramRecorder {
 public:
  static constexpr std::size_t kMaxBounds = 24;

  explicit HistogramRecorder(std::span<const double> bounds);
  void observe(double value, std::uint64_t count = 1);
  [[nodiscard]] Histogram snapshot() const;

 private:
  std::array<double, kMaxBounds> bounds_{};
  std::size_t num_bounds_;
  std::array<std::atomic<std::uint64_t>, kMaxBounds + 1> counts_{};
  std::atomic<double> sum_{0.0};
};

/// Host time of one phase of a step.
class HostStepRecorder : public HistogramRecorder {
 public:
  HostStepRecorder();
};

/// Of one node: replays of captured steps by bucket, steps that could have replayed by what kept them from it, and steps planned
/// ahead.
class GraphRecorder {
 public:
  /// `walks`: their names by WalkId. `engine` outlives what the worker counts.
  GraphRecorder(const Engine& engine, std::string node, std::vector<std::string> walks);

  /// After a launch of the engine. Thread: worker.
  void count();
  /// Adds this node's counts to those of others. Thread: any.
  void append_to(ServiceMetrics& metrics) const;

 private:
  struct Bucket {
    WalkId walk{};
    std::string name;
    Gauge num_replays;
  };
  struct Walk {
    std::string name;
    std::array<Gauge, kNumGraphMissReasons> misses;  // by GraphMissReason
  };
  struct Region {
    std::string name;
    Gauge num_replays;
    std::array<Gauge, kNumRegionMisses> misses;  // by RegionMiss
  };

  void count_regions(const PiecewiseRunners& regions);

  const Engine& engine_;
  std::string node_;
  std::deque<Bucket> buckets_;  // by number
  std::deque<Walk> walks_;      // by WalkId
  std::deque<Region> regions_;  // by place among the piecewise configs
  Gauge num_promoted_;
  Gauge num_dropped_;
  Gauge num_refused_;
};

/// Everything the worker counts. The worker thread writes; any thread takes a snapshot.
class WorkerMetrics {
 public:
  WorkerMetrics();

  Gauge num_running;
  Gauge num_waiting;
  Gauge pages_in_use;
  Gauge pages_total;
  Gauge num_preemptions;
  Gauge num_offloads;  // of those
  Gauge prompt_tokens;
  Gauge prefix_cache_queries;  // tokens
  Gauge prefix_cache_hits;     // tokens
  Gauge generation_tokens;
  std::array<Gauge, 4> finished;                            // by FinishReason
  std::array<Gauge, kNumWasteReasons> wasted_row_steps;     // by WasteReason
  std::array<Gauge, kNumSpeculativeRows> speculative_rows;  // by SpeculativeRow
  HistogramRecorder time_to_first_token;
  HistogramRecorder inter_token_latency;
  HistogramRecorder e2e_latency;
  HistogramRecorder queue_time;
  HistogramRecorder prefill_time;
  HistogramRecorder decode_time;
  std::array<HostStepRecorder, kNumStepPhases> host_step;  // by StepPhase; the wait stays empty
  HostStepRecorder host_step_total;
  HistogramRecorder gpu_idle;
  HistogramRecorder steps_per_launch;  // where a launch may run several
  std::deque<GraphRecorder> graphs;    // by NodeId; all there before the worker begins

  [[nodiscard]] Gauge& wasted(WasteReason reason) {
    return wasted_row_steps[static_cast<std::size_t>(reason)];
  }
  [[nodiscard]] Gauge& speculative(SpeculativeRow kind) {
    return speculative_rows[static_cast<std::size_t>(kind)];
  }
  /// A round of the worker's loop.
  void observe_step(const StepClock::Seconds& seconds);
  [[nodiscard]] ServiceMetrics snapshot() const;
};

}  // namespace rigel
