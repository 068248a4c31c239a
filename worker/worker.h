#pragma once

#include "engine/engine.h"
#include "engine/executing_batch.h"
#include "engine/step_clock.h"
#include "model/language_model_names.h"
#include "model/walk/program.h"
#include "worker/composite_listener.h"
#include "worker/dispatcher.h"
#include "worker/idle_clock.h"
#include "worker/mailbox.h"
#include "worker/metrics.h"
#include "worker/request_table.h"
#include "worker/scheduler.h"
#include "worker/sleeper.h"
#include "worker/step_log.h"
#include "worker/walk_columns.h"
#include "worker/walk_runtime.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

namespace rigel {

class Composite;
struct CompositeModel;

struct WorkerConfig {
  bool one_step_ahead = true;  // launch step N+1 before step N's values have reached the host
  /// Steps of decode lanes alone that one launch may run. Above 1 such steps run in turn: where a launch ends only the device
  /// knows.
  std::int32_t steps_per_launch = 1;
  std::int32_t num_rows = 0;
  std::int32_t max_num_batched_tokens = 0;
  std::int32_t max_length = 0;  // prompt and generated tokens
  std::uint64_t seed = 0;       // base of the seeds of requests that bring none
  std::vector<std::int32_t> eos_ids;
  StepLog* step_log = nullptr;  // told what each round costs; outlives the worker; null: nobody is
};

/// Runs requests on one device: a thread of its own that owns all request state and every resource of the engine, so none
/// of it has a lock. Other threads leave letters in its mailbox; outputs leave through the dispatcher. A round of its loop that
/// brings no new request and ends none allocates nothing, takes no lock and makes no system call but to wake the dispatcher.
class Worker final : private CompositeListener {
 public:
  /// Starts the thread, for a language model. `kv_cache` is one of the engine's resources.
  Worker(std::unique_ptr<Engine> engine, KvCache& kv_cache, const WorkerConfig& config,
         Dispatcher& dispatcher);
  /// The same for a model of several nodes. Where one of them is a language model, what the config says of tokens is about it.
  Worker(CompositeModel model, const WorkerConfig& config, Dispatcher& dispatcher);
  ~Worker() override;

  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Ends what is still running (kCancelled) and the thread; letters that come later are not read.
  void stop();

  // Thread: any.
  void submit(RequestId id, GenerationRequest request);
  void cancel(RequestId id);
  /// The request's text has met a stop string with its token number `num_tokens`; its last output was delivered already.
  void end_at_stop_string(RequestId id, std::int32_t num_tokens);
  [[nodiscard]] const WorkerMetrics& metrics() const { return metrics_; }
  /// False once the device has failed: every request fails from then on.
  [[nodiscard]] bool healthy() const { return healthy_.load(std::memory_order_relaxed); }
  /// Requests accepted and not ended.
  [[nodiscard]] std::int64_t num_unfinished() const {
    return num_unfinished_.load(std::memory_order_relaxed);
  }

 private:
  struct Submission {
    RequestId id;
    GenerationRequest request;
    Clock::time_point arrived;
  };
  struct Cancellation {
    RequestId id;
  };
  struct StopStringMet {
    RequestId id;
    std::int32_t num_tokens;
  };
  struct Shutdown {};
  using Letter = std::variant<Submission, Cancellation, StopStringMet, Shutdown>;

  /// A part of a prompt in a step, as far as its completion needs it. The request may have ended meanwhile.
  struct PromptLane {
    RequestHandle handle;
    std::int32_t num_tokens = 0;
    bool samples = false;
    bool ends_prompt = false;
    std::optional<PromptScoring> scoring = {};  // of the lane's tokens
  };
  /// A step from its schedule to its completion. Lanes: those that continue from the step in front, those that decode
  /// otherwise, prompts.
  struct FlyingStep {
    ExecutingBatch batch;
    std::vector<PromptLane> prompts;         // of the lanes behind those that decode
    std::vector<RequestHandle> prompt_ends;  // prompts whose last part this is
    std::size_t num_continuing = 0;
    std::size_t num_decoding = 0;              // continuing ones included
    std::uint64_t num_released = 0;            // RequestTable::num_released when it was launched
    std::optional<SpeculationId> speculation;  // of the continuing ones, until it is settled

    void clear();
    [[nodiscard]] bool samples(std::size_t lane) const {
      return lane < num_decoding || prompts[lane - num_decoding].samples;
    }
    [[nodiscard]] std::span<const RequestHandle> decoding() const {
      return batch.handles().first(num_decoding);
    }
  };

  using Names = LanguageModelNames;
  static constexpr WalkNode kPrefillNode{Names::kPrefill, Names::kNode};
  static constexpr WalkNode kDecodeNode{Names::kDecode, Names::kNode};

  Worker(Device& device, std::unique_ptr<Engine> engine, KvCache* kv_cache,
         const WorkerConfig& config, Dispatcher& dispatcher);
  void begin();
  void run();
  [[nodiscard]] bool run_round(bool wait);
  // The verbs of one step, in the order of the loop.
  void read_mail(bool wait);
  void read_letter(Letter& letter);
  void admit();
  /// False: its pages cannot be reloaded yet.
  [[nodiscard]] bool resume(RequestState& request);
  [[nodiscard]] bool waits_for_turns();
  bool launch_step();
  void preplan_step();
  void complete_step();
  void take_results(FlyingStep& step);
  void take_turn(const FlyingStep& step, const HostRows& rows);
  void begin_turn(FlyingStep& step);
  bool post_outputs();
  [[nodiscard]] bool has_captures_left() const;
  void capture_more();
  void end_round(bool launched, bool completed);
  void log_step(bool launched, bool completed, StepClock::Seconds seconds);

  [[nodiscard]] std::uint64_t num_in_flight() const;
  [[nodiscard]] bool launch_composite_step();
  void complete_composite_step();
  void update_composite_gauges();
  void on_value(RequestHandle handle, OutputValue value) override;
  void on_end(RequestHandle handle) override;
  void on_failure(RequestHandle handle, const std::string& error) override;

  void accept(Submission submission);
  [[nodiscard]] std::string find_error(const GenerationRequest& request) const;
  [[nodiscard]] Epoch close_row(RequestState& request, FinishReason reason);
  void open_row(RequestState& request);
  void reuse_prefix(RequestState& request);
  void keep_prefix(RequestState& request);
  [[nodiscard]] FlyingStep& step_of(Epoch epoch) { return steps_[epoch % steps_.size()]; }
  void build_step(FlyingStep& step);
  void add_decode_lanes(FlyingStep& step);
  void add_decode_lane(ExecutingBatch& batch, RequestHandle handle, const RequestInfo& info,
                       std::int32_t iteration) const;
  void add_prompt_lanes(FlyingStep& step);
  void add_prompt_lane(FlyingStep& step, const Scheduler::Share& share);
  void prepare_step(FlyingStep& step);
  void abandon_speculation(FlyingStep& step);
  void put_back(FlyingStep& step);
  [[nodiscard]] bool make_room(const AdmitOutcome& refusal);
  void after_launch(FlyingStep& step);
  void signal_text_inputs(RequestHandle handle);
  void begin_decode(RequestState& request);
  void count_prompts(const FlyingStep& step);
  void take_scores(const FlyingStep& step, const HostRows& rows);
  void find_stops(const FlyingStep& step, const HostRows& rows);
  void advance_walks(const FlyingStep& step);
  void mark_ended(RequestHandle handle);
  void unmark_ended();
  void take_tokens(const FlyingStep& step, const HostRows& rows);
  void end_with_token(RequestState& request, StepOutput& output);
  void take_logprobs(const HostRows& rows, std::size_t row, int num_top, StepOutput& output);
  void end_prompts(const FlyingStep& step);
  void count_token(RequestState& request);
  void count_latencies();
  [[nodiscard]] StepOutput& output_of(RequestState& request);
  void finish(RequestState& request, FinishReason reason, std::string error);
  void finish_failed();
  void fail_step(FlyingStep& step, const std::string& error);
  void fail_everything(const std::string& error);
  void give_up(const std::string& error);
  void update_gauges();

  // Of a language model; null otherwise.
  std::unique_ptr<Engine> engine_;
  const NodeInputs* decode_row_ = nullptr;  // of every lane that decodes
  std::size_t max_decode_lanes_ = 0;        // of a step
  std::size_t turn_ = 0;  // the waiting row that decodes first where they are more
  KvCache* kv_cache_;
  WorkerConfig config_;
  Dispatcher& dispatcher_;
  RequestTable table_;
  walk::Program program_;
  WalkRuntime walks_;
  RowSet offloaded_;  // rows that no step may have
  Scheduler scheduler_;
  std::unique_ptr<Composite> composite_;  // of a model of several nodes; null otherwise
  WorkerMetrics metrics_;
  std::array<FlyingStep, Engine::kMaxInFlight> steps_;  // by epoch
  ExecutingBatch expected_;                             // the step that is planned ahead
  StepClock clock_;
  IdleClock idle_clock_;
  Clock::time_point now_;              // when the latest step's tokens were there
  Clock::time_point same_last_token_;  // of the num_same_ requests whose latency is not counted yet
  std::uint64_t num_same_ = 0;
  float idle_seconds_ = 0.0f;  // from `now_` to the end of the next launch, for the step log
  StepClock::Seconds
      launch_seconds_{};  // of a launch of several turns that is in flight, for the step log
  std::int32_t num_with_stop_strings_ = 0;
  std::int32_t num_met_in_turns_ =
      0;  // that met one while the launch in flight runs several turns for them
  std::vector<Letter> letters_;
  std::vector<RequestView> views_;
  std::span<const LoopStop> stops_;  // of the step that is being completed
  std::vector<RequestFailure> failures_;
  std::vector<std::uint8_t> ends_row_;  // by row: ends with the step that is being completed
  std::vector<RequestHandle> ended_;    // those rows

  // Columns between the worker and its walks.
  ReadyNodes ready_;
  SpeculatedRows continuing_;
  std::vector<RequestInfo*> infos_;
  std::vector<const RequestInfo*> continuing_infos_;
  std::vector<std::uint32_t> refused_;
  std::vector<std::uint32_t> wasted_;
  std::vector<LoopStop> stopped_;
  RouteOutput routed_;

  bool shutting_down_ = false;
  bool has_given_up_ = false;  // nothing is launched or completed any more
  std::string why_unhealthy_;
  std::atomic<bool> healthy_{true};
  std::atomic<std::int64_t> num_unfinished_{0};
  Sleeper sleeper_;
  Mailbox<Letter> mailbox_{sleeper_};
  std::thread thread_;
};

}  // namespace rigel
