#pragma once

#include "engine/resources/kv_cache.h"
#include "worker/request_table.h"

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace rigel {

struct SchedulerConfig {
  std::int32_t max_num_batched_tokens = 0;  // a step's tokens; at least the number of rows
};

/// Decides which requests have a row and pages, and how many of their tokens each prompt brings to a step: first come, first
/// served. Who could run at all is known to the walks.
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

  /// `kv_cache` may be null: requests then need a row alone.
  Scheduler(RequestTable& table, const KvCache* kv_cache, const SchedulerConfig& config);

  /// Takes in an accepted request.
  void enqueue(RequestState& request);
  /// Forgets a request that ends.
  void remove(RequestState& request);

  /// The oldest request that waits for its pages, if they suffice; null where there is none or they do not.
  [[nodiscard]] RequestState* next_to_resume();
  /// Gives a row to the next waiting request; null where there is none, no row or too few pages. The caller opens the row in
  /// the engine before it asks again. Nobody overtakes a request that waits for its pages.
  RequestState* admit_next();
  /// The parts of these prompts in a step that decodes `num_decoding` tokens: what is left of the budget, shared max-min
  /// fairly, in order of admission.
  [[nodiscard]] std::span<const Share> share_prompts(std::span<const RequestHandle> prompts,
                                                     std::int32_t num_decoding);
  /// The newest running request; null where at most one runs.
  [[nodiscard]] RequestState* newest_running();
  /// The request starts over; the caller restarts it in the engine. Requires that no step is in flight.
  void preempt(RequestState& request);
  /// The request goes on when its pages are back; the caller offloads it. Requires that no step is in flight.
  void park(RequestState& request);

  [[nodiscard]] std::size_t num_waiting() const { return waiting_.size(); }
  [[nodiscard]] std::span<RequestState* const> running() const { return running_; }

 private:
  [[nodiscard]] static bool waits_for_pages(const RequestState* request);
  [[nodiscard]] RequestState* first_waiting_for_pages();
  [[nodiscard]] bool pages_suffice(const RequestState& request) const;

  RequestTable& table_;
  const KvCache* kv_cache_;
  SchedulerConfig config_;
  std::deque<RequestState*> waiting_;
  std::vector<RequestState*> running_;  // in order of admission
  std::uint64_t num_admitted_ = 0;
  bool may_wait_for_pages_ = false;  // false: none of `running_` does

  // Scratch of share_prompts.
  std::vector<Share> shares_;
  std::vector<RequestState*> prompts_;
  std::vector<std::int32_t> needs_;
  std::vector<std::int32_t> grants_;
};

}  // namespace rigel
