#include "worker/metrics.h"

#include "engine/piecewise_runners.h"
#include "tensor/error.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace rigel {

namespace {

// vLLM's buckets, so that existing dashboards show the same bars.
constexpr std::array kFirstTokenBounds = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08,
                                          0.1,   0.25,  0.5,  0.75, 1.0,  2.5,  5.0,
                                          7.5,   10.0,  20.0, 40.0, 80.0, 160.0};
constexpr std::array kTokenBounds = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4,
                                     0.5,  0.75,  1.0,  2.5,   5.0, 7.5,  10.0, 20.0, 40.0};
constexpr std::array kRequestBounds = {0.3,  0.5,   0.8,   1.0,   1.5,  2.0,  2.5,
                                       5.0,  10.0,  15.0,  20.0,  30.0, 40.0, 50.0,
                                       60.0, 120.0, 240.0, 480.0, 960.0};
constexpr std::array kHostStepBounds = {1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5,
                                        1e-4, 2e-4, 5e-4, 1e-3, 1e-2};
constexpr std::array kIdleBounds = {0.0,  1e-6, 5e-6, 1e-5, 5e-5, 1e-4,
                                    5e-4, 1e-3, 5e-3, 1e-2, 1e-1};

/// Names of /metrics, by StepPhase. What the model enqueues is a part of the launch of its own there.
constexpr std::array<const char*, kNumStepPhases> kPhaseNames = {
    "build", "declare", "admit", "plan", "splice", "forward", "launch", "settle", "route", "wait"};

constexpr std::array<double, 5> kTurnBounds = {1, 2, 4, 8, 16};

/// Names of /metrics, by GraphMissReason.
constexpr std::array<const char*, kNumGraphMissReasons> kMissNames = {
    "declined", "no_bucket", "not_captured", "key_mismatch", "overflow"};
/// By RegionMiss.
constexpr std::array<const char*, kNumRegionMisses> kRegionMissNames = {"no_bucket", "not_captured",
                                                                        "not_leased", "overflow"};

std::uint64_t count_of(const Gauge& gauge) {
  return static_cast<std::uint64_t>(gauge.value());
}

}  // namespace

HistogramRecorder::HistogramRecorder(std::span<const double> bounds) : num_bounds_(bounds.size()) {
  RIGEL_CHECK(bounds.size() <= kMaxBounds, "a histogram has at most {} bounds, got {}", kMaxBounds,
              bounds.size());
  std::ranges::copy(bounds, bounds_.begin());
}

void HistogramRecorder::observe(double value, std::uint64_t count) {
  std::size_t bucket = 0;
  while (bucket < num_bounds_ && value > bounds_[bucket]) {
    ++bucket;
  }
  counts_[bucket].store(counts_[bucket].load(std::memory_order_relaxed) + count,
                        std::memory_order_relaxed);
  sum_.store(sum_.load(std::memory_order_relaxed) + value * static_cast<double>(count),
             std::memory_order_relaxed);
}

Histogram HistogramRecorder::snapshot() const {
  Histogram result;
  result.bounds.assign(bounds_.begin(), bounds_.begin() + static_cast<std::ptrdiff_t>(num_bounds_));
  for (std::size_t bucket = 0; bucket <= num_bounds_; ++bucket) {
    result.counts.push_back(counts_[bucket].load(std::memory_order_relaxed));
    result.count += result.counts.back();
  }
  result.sum = sum_.load(std::memory_order_relaxed);
  return result;
}

WorkerMetrics::WorkerMetrics()
    : time_to_first_token(kFirstTokenBounds),
      inter_token_latency(kTokenBounds),
      e2e_latency(kRequestBounds),
      queue_time(kRequestBounds),
      prefill_time(kRequestBounds),
      decode_time(kRequestBounds),
      gpu_idle(kIdleBounds),
      steps_per_launch(kTurnBounds) {}

HostStepRecorder::HostStepRecorder() : HistogramRecorder(kHostStepBounds) {}

void WorkerMetrics::observe_step(const StepClock::Seconds& seconds) {
  double total = 0.0;
  for (std::size_t phase = 0; phase < kNumStepPhases; ++phase) {
    if (phase != static_cast<std::size_t>(StepPhase::kWait)) {
      host_step[phase].observe(seconds[phase]);
      total += seconds[phase];
    }
  }
  host_step_total.observe(total);
}

GraphRecorder::GraphRecorder(const Engine& engine, std::string node, std::vector<std::string> walks)
    : engine_(engine), node_(std::move(node)) {
  for (std::string& walk : walks) {
    walks_.emplace_back().name = std::move(walk);
  }
  if (const StepCaptures* const captures = engine.captures()) {
    for (std::size_t index = 0; index < captures->runner().buckets().size(); ++index) {
      Bucket& bucket = buckets_.emplace_back();
      bucket.walk = static_cast<WalkId>(captures->runner().buckets()[index].walk);
      bucket.name = captures->bucket_name(index);
    }
    for (std::size_t index = 0; index < captures->regions().size(); ++index) {
      regions_.emplace_back().name = captures->regions()[index].label();
    }
  }
}

void GraphRecorder::count_regions(const PiecewiseRunners& regions) {
  for (std::size_t index = 0; index < regions.size(); ++index) {
    const RegionCounts& counts = regions[index].counts();
    regions_[index].num_replays.set(static_cast<std::int64_t>(counts.num_replays));
    for (std::size_t reason = 0; reason < kNumRegionMisses; ++reason) {
      regions_[index].misses[reason].set(static_cast<std::int64_t>(counts.misses[reason]));
    }
  }
}

void GraphRecorder::count() {
  const StepCaptures* const captures = engine_.captures();
  if (captures == nullptr) {
    return;
  }
  if (const std::optional<std::size_t> bucket = captures->last_replayed()) {
    buckets_[*bucket].num_replays.set(
        static_cast<std::int64_t>(captures->runner().num_replays(*bucket)));
  }
  count_regions(captures->regions());
  for (const GraphMiss& miss : engine_.graph_misses().all()) {
    walks_[static_cast<std::size_t>(miss.walk)].misses[static_cast<std::size_t>(miss.reason)].set(
        static_cast<std::int64_t>(miss.count));
  }
  const PreplanCounts& preplans = engine_.preplan_counts();
  num_promoted_.set(static_cast<std::int64_t>(preplans.promoted));
  num_dropped_.set(static_cast<std::int64_t>(preplans.dropped));
  num_refused_.set(static_cast<std::int64_t>(preplans.refused));
}

void GraphRecorder::append_to(ServiceMetrics& metrics) const {
  for (const Bucket& bucket : buckets_) {
    if (const std::uint64_t count = count_of(bucket.num_replays); count > 0) {
      metrics.graph_replays.push_back(
          {node_, walks_[static_cast<std::size_t>(bucket.walk)].name, bucket.name, count});
    }
  }
  for (const Walk& walk : walks_) {
    for (std::size_t reason = 0; reason < walk.misses.size(); ++reason) {
      if (const std::uint64_t count = count_of(walk.misses[reason]); count > 0) {
        metrics.graph_misses.push_back({node_, walk.name, kMissNames[reason], count});
      }
    }
  }
  for (const Region& region : regions_) {
    const auto add = [&](const char* outcome, const Gauge& gauge) {
      if (const std::uint64_t count = count_of(gauge); count > 0) {
        metrics.graph_regions.push_back({node_, region.name, outcome, count});
      }
    };
    add("replayed", region.num_replays);
    for (std::size_t reason = 0; reason < kNumRegionMisses; ++reason) {
      add(kRegionMissNames[reason], region.misses[reason]);
    }
  }
  metrics.preplans.insert(metrics.preplans.end(), {{node_, "promoted", count_of(num_promoted_)},
                                                   {node_, "dropped", count_of(num_dropped_)},
                                                   {node_, "refused", count_of(num_refused_)}});
}

ServiceMetrics WorkerMetrics::snapshot() const {
  ServiceMetrics result;
  result.num_running = num_running.value();
  result.num_waiting = num_waiting.value();
  const std::int64_t total = pages_total.value();
  result.kv_cache_usage =
      total == 0 ? 0.0 : static_cast<double>(pages_in_use.value()) / static_cast<double>(total);
  result.num_preemptions = count_of(num_preemptions);
  result.num_offloads = count_of(num_offloads);
  result.prompt_tokens = count_of(prompt_tokens);
  result.prefix_cache_queries = count_of(prefix_cache_queries);
  result.prefix_cache_hits = count_of(prefix_cache_hits);
  result.generation_tokens = count_of(generation_tokens);
  for (std::size_t reason = 0; reason < finished.size(); ++reason) {
    result.finished[reason] = count_of(finished[reason]);
  }
  for (std::size_t kind = 0; kind < speculative_rows.size(); ++kind) {
    result.speculative_rows[kind] = count_of(speculative_rows[kind]);
  }
  for (std::size_t reason = 0; reason < wasted_row_steps.size(); ++reason) {
    result.wasted_row_steps[reason] = count_of(wasted_row_steps[reason]);
  }
  result.time_to_first_token_seconds = time_to_first_token.snapshot();
  result.inter_token_latency_seconds = inter_token_latency.snapshot();
  result.e2e_request_latency_seconds = e2e_latency.snapshot();
  result.request_queue_time_seconds = queue_time.snapshot();
  result.request_prefill_time_seconds = prefill_time.snapshot();
  result.request_decode_time_seconds = decode_time.snapshot();
  for (std::size_t phase = 0; phase < kNumStepPhases; ++phase) {
    if (phase != static_cast<std::size_t>(StepPhase::kWait)) {
      result.host_step_seconds.emplace_back(kPhaseNames[phase], host_step[phase].snapshot());
    }
  }
  result.host_step_seconds.emplace_back("total", host_step_total.snapshot());
  result.gpu_idle_between_steps_seconds = gpu_idle.snapshot();
  result.steps_per_launch = steps_per_launch.snapshot();
  for (const GraphRecorder& node : graphs) {
    node.append_to(result);
  }
  return result;
}

}  // namespace rigel
