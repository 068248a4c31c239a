#include "server/metrics.h"

#include <fmt/core.h>

#include <iterator>

namespace rigel::server {
namespace {

constexpr FinishReason kFinishReasons[] = {FinishReason::kStop, FinishReason::kLength,
                                           FinishReason::kCancelled, FinishReason::kError};
constexpr std::string_view kSpeculativeRows[] = {"continuing", "fresh", "dropped"};
constexpr std::string_view kWasteReasons[] = {"stop_token", "stop_string", "length", "abort",
                                              "error"};

/// A label's value: backslash, quote and line break are escaped.
std::string escaped(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') {
      out += '\\';
    }
    c == '\n' ? out += "\\n" : out += c;
  }
  return out;
}

class Exposition {
 public:
  explicit Exposition(std::string_view model_name)
      : labels_(fmt::format("engine=\"0\",model_name=\"{}\"", escaped(model_name))) {}

  void family(std::string_view name, std::string_view type, std::string_view help) {
    fmt::format_to(to(), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }

  template <typename Number>
  void sample(std::string_view name, Number value, std::string_view more_labels = {}) {
    fmt::format_to(to(), "{}{{{}{}{}}} {}\n", name, labels_, more_labels.empty() ? "" : ",",
                   more_labels, value);
  }

  template <typename Number>
  void single(std::string_view name, std::string_view type, std::string_view help, Number value) {
    family(name, type, help);
    sample(name, value);
  }

  void histogram(std::string_view name, std::string_view help, const Histogram& histogram) {
    family(name, "histogram", help);
    buckets(name, histogram, "");
  }

  void buckets(std::string_view name, const Histogram& histogram, std::string_view more_labels) {
    const std::string comma = more_labels.empty() ? "" : ",";
    const std::string bucket = fmt::format("{}_bucket", name);
    std::uint64_t num_below = 0;
    for (std::size_t i = 0; i < histogram.bounds.size() && i < histogram.counts.size(); ++i) {
      num_below += histogram.counts[i];
      sample(bucket, num_below,
             fmt::format("{}{}le=\"{}\"", more_labels, comma, histogram.bounds[i]));
    }
    sample(bucket, histogram.count, fmt::format("{}{}le=\"+Inf\"", more_labels, comma));
    sample(fmt::format("{}_sum", name), histogram.sum, more_labels);
    sample(fmt::format("{}_count", name), histogram.count, more_labels);
  }

  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  std::back_insert_iterator<std::string> to() { return std::back_inserter(out_); }

  const std::string labels_;
  std::string out_;
};

void write_state(Exposition& out, const ServiceMetrics& metrics) {
  out.single("vllm:num_requests_running", "gauge", "Requests that have a row.",
             metrics.num_running);
  out.single("vllm:num_requests_waiting", "gauge", "Requests that wait for a row.",
             metrics.num_waiting);
  out.single("vllm:kv_cache_usage_perc", "gauge", "Part of the KV cache in use, 0 to 1.",
             metrics.kv_cache_usage);
}

void write_counters(Exposition& out, const ServiceMetrics& metrics) {
  out.single("vllm:prefix_cache_queries_total", "counter",
             "Prompt tokens looked up in the prefix cache.", metrics.prefix_cache_queries);
  out.single("vllm:prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache.",
             metrics.prefix_cache_hits);
  out.single("vllm:num_preemptions_total", "counter",
             "Requests that gave up their pages for others.", metrics.num_preemptions);
  out.single("rigel:kv_offloads_total", "counter",
             "Preempted requests whose pages were moved to the host.", metrics.num_offloads);
  out.single("vllm:prompt_tokens_total", "counter", "Prompt tokens processed.",
             metrics.prompt_tokens);
  out.single("vllm:generation_tokens_total", "counter", "Tokens generated.",
             metrics.generation_tokens);

  out.family("vllm:request_success_total", "counter", "Requests that ended, by reason.");
  for (const FinishReason reason : kFinishReasons) {
    out.sample("vllm:request_success_total", metrics.finished[static_cast<std::size_t>(reason)],
               fmt::format("finished_reason=\"{}\"", name_of(reason)));
  }
  out.family("rigel:speculative_rows_total", "counter",
             "Rows of steps that were built one step ahead of the values they go on from.");
  for (std::size_t i = 0; i < metrics.speculative_rows.size(); ++i) {
    out.sample("rigel:speculative_rows_total", metrics.speculative_rows[i],
               fmt::format("kind=\"{}\"", kSpeculativeRows[i]));
  }
  out.family("rigel:wasted_row_steps_total", "counter",
             "Row-steps whose result was thrown away, by what ended the row.");
  for (std::size_t i = 0; i < metrics.wasted_row_steps.size(); ++i) {
    out.sample("rigel:wasted_row_steps_total", metrics.wasted_row_steps[i],
               fmt::format("reason=\"{}\"", kWasteReasons[i]));
  }
}

void write_graphs(Exposition& out, const ServiceMetrics& metrics) {
  out.family("rigel:graph_replay_total", "counter", "Steps that replayed a captured one.");
  for (const GraphReplayCount& replays : metrics.graph_replays) {
    out.sample("rigel:graph_replay_total", replays.count,
               fmt::format("node=\"{}\",walk=\"{}\",bucket=\"{}\"", escaped(replays.node),
                           escaped(replays.walk), escaped(replays.bucket)));
  }
  out.family("rigel:graph_miss_total", "counter",
             "Steps of a captured walk that were enqueued launch by launch, by why.");
  for (const GraphMissCount& misses : metrics.graph_misses) {
    out.sample("rigel:graph_miss_total", misses.count,
               fmt::format("node=\"{}\",walk=\"{}\",reason=\"{}\"", escaped(misses.node),
                           escaped(misses.walk), misses.reason));
  }
  out.family(
      "rigel:graph_region_total", "counter",
      "Runs of a captured part of the forward in steps that are not captured whole: replayed, "
      "or why they were enqueued launch by launch.");
  for (const GraphRegionCount& regions : metrics.graph_regions) {
    out.sample("rigel:graph_region_total", regions.count,
               fmt::format("node=\"{}\",region=\"{}\",outcome=\"{}\"", escaped(regions.node),
                           escaped(regions.region), regions.outcome));
  }
  out.family("rigel:preplan_total", "counter",
             "Steps planned ahead of their turn, by what became of them.");
  for (const PreplanCount& preplans : metrics.preplans) {
    out.sample("rigel:preplan_total", preplans.count,
               fmt::format("node=\"{}\",outcome=\"{}\"", escaped(preplans.node), preplans.outcome));
  }
}

void write_latencies(Exposition& out, const ServiceMetrics& metrics) {
  out.histogram("vllm:time_to_first_token_seconds", "From a request's arrival to its first token.",
                metrics.time_to_first_token_seconds);
  out.histogram("vllm:inter_token_latency_seconds", "Between two tokens of a request.",
                metrics.inter_token_latency_seconds);
  out.histogram("vllm:e2e_request_latency_seconds", "From a request's arrival to its end.",
                metrics.e2e_request_latency_seconds);
  out.histogram("vllm:request_queue_time_seconds", "Spent waiting for a row.",
                metrics.request_queue_time_seconds);
  out.histogram("vllm:request_prefill_time_seconds", "From a row to the first token.",
                metrics.request_prefill_time_seconds);
  out.histogram("vllm:request_decode_time_seconds", "From the first token to the last.",
                metrics.request_decode_time_seconds);
  constexpr std::string_view kHostStep = "rigel:host_step_seconds";
  out.family(kHostStep, "histogram", "The worker's own work a step, by phase.");
  for (const auto& [phase, histogram] : metrics.host_step_seconds) {
    out.buckets(kHostStep, histogram, fmt::format("phase=\"{}\"", phase));
  }
  out.histogram("rigel:gpu_idle_between_steps_seconds",
                "What the device waited for its next step while there was one to run.",
                metrics.gpu_idle_between_steps_seconds);
  out.histogram("rigel:steps_per_launch",
                "Decode steps that a launch has run, where it may run several.",
                metrics.steps_per_launch);
}

}  // namespace

std::string prometheus_text(const ServiceMetrics& metrics, std::string_view model_name) {
  Exposition out(model_name);
  write_state(out, metrics);
  write_counters(out, metrics);
  write_graphs(out, metrics);
  write_latencies(out, metrics);
  out.family("rigel:memory_bytes", "gauge", "Memory by part.");
  for (const auto& [part, num_bytes] : metrics.memory_bytes) {
    out.sample("rigel:memory_bytes", num_bytes, fmt::format("part=\"{}\"", escaped(part)));
  }
  return out.take();
}

}  // namespace rigel::server
