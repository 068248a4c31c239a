#pragma once

#include "engine/resources/kv_cache.h"
#include "worker/request_table.h"

#include <cstdint>
#include <deque>
#include <limits>
#include <span>
#include <vector>

namespace rigel {

struct SchedulerConfig {
  std::int32_t max_num_batched_tokens = 0;  // a step's tokens; at least the number of rows
  std::int32_t max_decode_lanes =
      std::numeric_limits<std::int32_t>::max();  // of a step without prompts: what captures hold
};

/// Decides which requests run in the next step and with how many tokens each: first come, first served.
///
/// A waiting request is admitted when a row is free and the pages of its prompt plus one are; pages are then taken as it
/// grows. When they run out the newest running request is preempted, so the oldest always goes on. Thread: worker.
class Scheduler {
 public:
  /// A request's share of a step.
  struct Share {
    RequestState* request = nullptr;
    std::int32_t num_tokens = 0;
  };

  Scheduler(RequestTable& table, const KvCache& kv_cache, const SchedulerConfig& config);

  /// Takes in an accepted request.
  void enqueue(RequestState& request);
  /// Forgets a request that ends.
  void remove(RequestState& request);

  /// Lets the oldest preempted request start over, if pages suffice; null where there is none or they do not.
  RequestState* resume_next();
  /// Gives a row to the next waiting request; null where there is none, no row or too few pages. The caller opens the row in
  /// the engine before it asks again. Nobody overtakes a preempted request.
  RequestState* admit_next();
  /// The next step: decode lanes first, then prompts under the token budget, shared max-min fairly. Empty: nothing can run.
  /// Where there are no prompts and more decode lanes than a step may have, equal parts of them take turns.
  [[nodiscard]] std::span<const Share> next_step();
  /// The newest running request, which now starts over; the caller restarts it in the engine. Null where at most one runs.
  /// Requires that no step is in flight.
  RequestState* preempt_newest();

  [[nodiscard]] std::size_t num_waiting() const { return waiting_.size(); }
  [[nodiscard]] std::span<RequestState* const> running() const { return running_; }

 private:
  void take_turns();
  [[nodiscard]] bool is_active(const RequestState& request) const;
  [[nodiscard]] bool pages_suffice(const RequestState& request) const;
  [[nodiscard]] std::int32_t pages_wanted(const RequestState& request) const;

  RequestTable& table_;
  const KvCache& kv_cache_;
  SchedulerConfig config_;
  std::deque<RequestState*> waiting_;
  std::vector<RequestState*> running_;  // in order of admission
  std::uint64_t num_admitted_ = 0;

  // Scratch of next_step.
  std::vector<Share> shares_;
  std::vector<RequestState*> prefilling_;
  std::vector<std::int32_t> needs_;
  std::vector<std::int32_t> grants_;

  std::size_t next_turn_ = 0;  // the decode lane that the next part begins with
};

}  // namespace rigel
