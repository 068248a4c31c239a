#pragma once

#include "engine/engine.h"
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

/// Replays of captured steps by bucket, and steps that could have replayed by what kept them from it.
class GraphRecorder {
 public:
  /// Before anybody else sees it.
  void name_buckets(const BucketTable& buckets);
  /// After a launch.
  void count(const Engine& engine);
  [[nodiscard]] std::vector<GraphReplayCount> replays() const;
  [[nodiscard]] std::vector<GraphMissCount> misses() const;
  [[nodiscard]] std::vector<PreplanCount> preplans() const;

 private:
  struct Bucket {
    WalkId walk{};
    std::string name;
    Gauge num_replays;
  };
  static constexpr std::size_t kNumWalks = 3;

  std::deque<Bucket> buckets_;  // by number
  std::array<std::array<Gauge, kNumGraphMissReasons>, kNumWalks> misses_;
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
  GraphRecorder graphs;

  [[nodiscard]] Gauge& wasted(WasteReason reason) {
    return wasted_row_steps[static_cast<std::size_t>(reason)];
  }
  [[nodiscard]] Gauge& speculative(SpeculativeRow kind) {
    return speculative_rows[static_cast<std::size_t>(kind)];
  }
  /// A turn of the worker's loop.
  void observe_step(const StepClock::Seconds& seconds);
  [[nodiscard]] ServiceMetrics snapshot() const;
};

}  // namespace rigel
