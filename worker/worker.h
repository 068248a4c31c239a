#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "engine/engine.h"
#include "engine/executing_batch.h"
#include "worker/dispatcher.h"
#include "worker/mailbox.h"
#include "worker/metrics.h"
#include "worker/request_table.h"
#include "worker/scheduler.h"

namespace rigel {

struct WorkerConfig {
  std::int32_t num_rows = 0;
  std::int32_t max_num_batched_tokens = 0;
  std::int32_t max_length = 0;  // prompt and generated tokens
  std::uint64_t seed = 0;       // base of the seeds of requests that bring none
  std::vector<std::int32_t> eos_ids;
};

/// Runs requests on one device: a thread of its own that owns all request state and every resource of the engine, so none
/// of it has a lock. Other threads leave letters in its mailbox; outputs leave through the dispatcher.
class Worker {
 public:
  /// Starts the thread. `kv_cache` is one of the engine's resources.
  Worker(std::unique_ptr<Engine> engine, const KvCache& kv_cache, const WorkerConfig& config,
         Dispatcher& dispatcher);
  ~Worker();

  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Ends what is still running (kCancelled) and the thread; letters that come later are not read.
  void stop();

  // Thread: any.
  void submit(RequestId id, GenerationRequest request);
  void cancel(RequestId id);
  /// The request's text has met a stop string; its last output was delivered already.
  void end_at_stop_string(RequestId id);
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
  };
  struct Shutdown {};
  using Letter = std::variant<Submission, Cancellation, StopStringMet, Shutdown>;

  void run();
  // The verbs of one step, in the order of the loop.
  void read_mail(bool wait);
  void admit();
  bool launch_step();
  void complete_step();
  void post_outputs();

  void accept(Submission submission);
  void open_row(RequestState& request);
  [[nodiscard]] bool add_lane(const Scheduler::Share& share);
  void build_batch(std::span<const Scheduler::Share> shares);
  void after_launch();
  void take_scores(const HostRows& rows);
  void take_tokens(const HostRows& rows);
  void take_token(RequestState& request, const HostRows& rows, std::size_t lane, bool stops);
  void end_prompts();
  void count_token(RequestState& request, Clock::time_point now);
  [[nodiscard]] StepOutput& output_of(RequestState& request);
  void finish(RequestState& request, FinishReason reason, std::string error);
  void fail_batch(const std::string& error);
  void fail_everything(const std::string& error);
  void update_gauges();

  std::unique_ptr<Engine> engine_;
  const KvCache& kv_cache_;
  WorkerConfig config_;
  Dispatcher& dispatcher_;
  RequestTable table_;
  Scheduler scheduler_;
  WorkerMetrics metrics_;
  ExecutingBatch batch_;
  std::vector<Scheduler::Share> lanes_;  // of the step in flight, in batch order
  StepMessage message_;
  std::vector<Letter> letters_;
  std::vector<RequestView> views_;
  std::vector<LoopStop> stops_;
  bool shutting_down_ = false;
  std::atomic<bool> healthy_{true};
  std::atomic<std::int64_t> num_unfinished_{0};
  Mailbox<Letter> mailbox_;
  std::thread thread_;
};

}  // namespace rigel
