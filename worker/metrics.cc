#include "worker/metrics.h"

#include "model/language_model_names.h"
#include "tensor/error.h"

#include <fmt/core.h>

#include <algorithm>

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

/// Names of /metrics, by WalkId of the language model and by GraphMissReason.
constexpr std::array<const char*, 3> kWalkNames = {"prefill", "decode", "mixed"};
constexpr std::array<const char*, kNumGraphMissReasons> kMissNames = {
    "declined", "no_bucket", "not_captured", "key_mismatch", "overflow"};

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
      gpu_idle(kIdleBounds) {}

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

void GraphRecorder::name_buckets(const BucketTable& buckets) {
  for (std::size_t index = 0; index < buckets.size(); ++index) {
    const GraphBucket& bucket = buckets[index];
    Bucket& named = buckets_.emplace_back();
    named.walk = static_cast<WalkId>(bucket.walk);
    named.name = fmt::format("{}", bucket.num_lanes);
    if (buckets.kind(index) == BucketKind::kPacked) {
      named.name += fmt::format("/{}-tokens", bucket.num_tokens);
    }
    if (bucket.key == LanguageModelNames::kWithLogprobs.number()) {
      named.name += "/logprobs";
    }
  }
}

void GraphRecorder::count(const Engine& engine) {
  const StepCaptures* const captures = engine.captures();
  if (captures == nullptr) {
    return;
  }
  if (const std::optional<std::size_t> bucket = captures->last_replayed()) {
    buckets_[*bucket].num_replays.set(
        static_cast<std::int64_t>(captures->runner().num_replays(*bucket)));
  }
  for (const GraphMiss& miss : engine.graph_misses().all()) {
    misses_[static_cast<std::size_t>(miss.walk)][static_cast<std::size_t>(miss.reason)].set(
        static_cast<std::int64_t>(miss.count));
  }
  const PreplanCounts& preplans = engine.preplan_counts();
  num_promoted_.set(static_cast<std::int64_t>(preplans.promoted));
  num_dropped_.set(static_cast<std::int64_t>(preplans.dropped));
  num_refused_.set(static_cast<std::int64_t>(preplans.refused));
}

std::vector<PreplanCount> GraphRecorder::preplans() const {
  const auto count = [](const Gauge& gauge) { return static_cast<std::uint64_t>(gauge.value()); };
  return {{"promoted", count(num_promoted_)},
          {"dropped", count(num_dropped_)},
          {"refused", count(num_refused_)}};
}

std::vector<GraphReplayCount> GraphRecorder::replays() const {
  std::vector<GraphReplayCount> counts;
  for (const Bucket& bucket : buckets_) {
    if (const auto count = static_cast<std::uint64_t>(bucket.num_replays.value()); count > 0) {
      counts.push_back({kWalkNames[static_cast<std::size_t>(bucket.walk)], bucket.name, count});
    }
  }
  return counts;
}

std::vector<GraphMissCount> GraphRecorder::misses() const {
  std::vector<GraphMissCount> counts;
  for (std::size_t walk = 0; walk < misses_.size(); ++walk) {
    for (std::size_t reason = 0; reason < misses_[walk].size(); ++reason) {
      if (const auto count = static_cast<std::uint64_t>(misses_[walk][reason].value()); count > 0) {
        counts.push_back({kWalkNames[walk], kMissNames[reason], count});
      }
    }
  }
  return counts;
}

ServiceMetrics WorkerMetrics::snapshot() const {
  ServiceMetrics result;
  result.num_running = num_running.value();
  result.num_waiting = num_waiting.value();
  const std::int64_t total = pages_total.value();
  result.kv_cache_usage =
      total == 0 ? 0.0 : static_cast<double>(pages_in_use.value()) / static_cast<double>(total);
  const auto count = [](const Gauge& gauge) { return static_cast<std::uint64_t>(gauge.value()); };
  result.num_preemptions = count(num_preemptions);
  result.num_offloads = count(num_offloads);
  result.prompt_tokens = count(prompt_tokens);
  result.prefix_cache_queries = count(prefix_cache_queries);
  result.prefix_cache_hits = count(prefix_cache_hits);
  result.generation_tokens = count(generation_tokens);
  for (std::size_t reason = 0; reason < finished.size(); ++reason) {
    result.finished[reason] = count(finished[reason]);
  }
  for (std::size_t kind = 0; kind < speculative_rows.size(); ++kind) {
    result.speculative_rows[kind] = count(speculative_rows[kind]);
  }
  for (std::size_t reason = 0; reason < wasted_row_steps.size(); ++reason) {
    result.wasted_row_steps[reason] = count(wasted_row_steps[reason]);
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
  result.graph_replays = graphs.replays();
  result.graph_misses = graphs.misses();
  result.preplans = graphs.preplans();
  return result;
}

}  // namespace rigel
