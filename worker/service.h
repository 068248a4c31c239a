#pragma once

#include "worker/request.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rigel {

/// A request's name inside a service; never reused.
enum class RequestId : std::uint64_t {};

/// Why a request was not accepted.
struct RequestError {
  enum class Kind : std::uint8_t {
    kInvalid,      // the request can never run: 400
    kOverloaded,   // the queue is full: 503, try again later
    kUnavailable,  // loading, draining or dead: 503
  };
  Kind kind = Kind::kInvalid;
  std::string message;  // names the field, its value and the allowed range
  std::string param;    // the field
};

struct SubmitResult {
  RequestId id{};
  std::optional<RequestError> error;
};

/// A cumulative histogram: counts[i] observations were <= bounds[i]; the last count has no bound.
struct Histogram {
  std::vector<double> bounds;
  std::vector<std::uint64_t> counts;  // not cumulative; bounds.size() + 1
  double sum = 0.0;
  std::uint64_t count = 0;
};

/// Why a row-step's result was thrown away: what ended the request while the step was on its way.
enum class WasteReason : std::uint8_t { kStopToken, kStopString, kLength, kCancelled, kError };
inline constexpr std::size_t kNumWasteReasons = 5;

/// What became of rows whose step was built one step ahead of the values that it goes on from.
enum class SpeculativeRow : std::uint8_t {
  kContinuing,  // goes on from the step in flight
  kFresh,       // joined those that do
  kDropped,     // would have gone on; the step was not launched
};
inline constexpr std::size_t kNumSpeculativeRows = 3;

/// Replays of one captured step.
struct GraphReplayCount {
  std::string node;
  std::string walk;
  std::string bucket;  // StepCaptures::bucket_name
  std::uint64_t count = 0;
};

/// Steps of a walk that has captures and ran launch by launch all the same.
struct GraphMissCount {
  std::string node;
  std::string walk;
  std::string reason;
  std::uint64_t count = 0;
};

/// Runs of a captured region of the forward, in steps that are not captured whole.
struct GraphRegionCount {
  std::string node;
  std::string region;
  std::string outcome;  // "replayed", or why it was enqueued launch by launch
  std::uint64_t count = 0;
};

/// Steps that were planned ahead, by what became of them: promoted, dropped or refused.
struct PreplanCount {
  std::string node;
  std::string outcome;
  std::uint64_t count = 0;
};

/// What /metrics shows; a consistent copy.
struct ServiceMetrics {
  std::int64_t num_running = 0;
  std::int64_t num_waiting = 0;
  double kv_cache_usage = 0.0;  // 0..1
  std::uint64_t num_preemptions = 0;
  std::uint64_t num_offloads = 0;  // preemptions that kept the pages on the host
  std::uint64_t prompt_tokens = 0;
  std::uint64_t generation_tokens = 0;
  std::uint64_t prefix_cache_queries = 0;                             // tokens
  std::uint64_t prefix_cache_hits = 0;                                // tokens
  std::array<std::uint64_t, 4> finished{};                            // by FinishReason
  std::array<std::uint64_t, kNumWasteReasons> wasted_row_steps{};     // by WasteReason
  std::array<std::uint64_t, kNumSpeculativeRows> speculative_rows{};  // by SpeculativeRow
  Histogram time_to_first_token_seconds;
  Histogram inter_token_latency_seconds;
  Histogram e2e_request_latency_seconds;
  Histogram request_queue_time_seconds;
  Histogram request_prefill_time_seconds;
  Histogram request_decode_time_seconds;
  std::vector<std::pair<std::string, Histogram>> host_step_seconds;  // phase of a step, "total"
  Histogram gpu_idle_between_steps_seconds;
  Histogram steps_per_launch;                   // of decode steps, where a launch may run several
  std::vector<GraphReplayCount> graph_replays;  // of buckets that were replayed
  std::vector<GraphMissCount> graph_misses;     // of every reason, where there were any
  std::vector<GraphRegionCount> graph_regions;  // of every outcome, where there were any
  std::vector<PreplanCount> preplans;
  std::vector<std::pair<std::string, std::int64_t>> memory_bytes;  // part, bytes
};

/// What a model can do and how long its requests may be.
struct ServiceLimits {
  int max_model_len = 0;  // prompt plus output, tokens
  int vocab_size = 0;
  int max_logprobs = 20;
};

/// Generates text: the border between what people touch and the engine. Every method may be called from any thread.
class InferenceService {
 public:
  virtual ~InferenceService() = default;

  [[nodiscard]] virtual ServiceLimits limits() const = 0;

  /// Queues a request. Its listener is called until a delta with `finish`, unless an error comes back here.
  virtual SubmitResult submit(GenerationRequest request,
                              std::shared_ptr<OutputListener> listener) = 0;

  /// Ends a request early; the listener still gets its last delta (kCancelled). Unknown and ended ids are ignored.
  virtual void cancel(RequestId id) = 0;

  [[nodiscard]] virtual ServiceMetrics metrics() const = 0;

  /// False once the engine can make no progress any more.
  [[nodiscard]] virtual bool healthy() const = 0;

  /// Refuses new requests from now on; running ones go on.
  virtual void begin_drain() = 0;

  /// Requests accepted and not finished yet.
  [[nodiscard]] virtual std::int64_t num_unfinished() const = 0;
};

}  // namespace rigel
