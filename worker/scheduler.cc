#include "worker/scheduler.h"

#include "tensor/error.h"
#include "worker/token_budget.h"

#include <algorithm>

namespace rigel {

using Phase = RequestState::Phase;

Scheduler::Scheduler(RequestTable& table, const KvCache& kv_cache, const SchedulerConfig& config)
    : table_(table), kv_cache_(kv_cache), config_(config) {
  RIGEL_CHECK(config.max_num_batched_tokens >= table.num_rows(),
              "max_num_batched_tokens must be at least max_num_seqs, got {} and {}",
              config.max_num_batched_tokens, table.num_rows());
}

void Scheduler::enqueue(RequestState& request) {
  waiting_.push_back(&request);
}

void Scheduler::remove(RequestState& request) {
  std::erase(waiting_, &request);
  std::erase(running_, &request);
}

bool Scheduler::is_active(const RequestState& request) const {
  return request.phase == Phase::kPrefill || request.phase == Phase::kDecode;
}

std::int32_t Scheduler::pages_wanted(const RequestState& request) const {
  const std::int32_t wanted = kv_cache_.config().pages_for(request.num_tokens()) + 1;
  return std::min(wanted, kv_cache_.arena().capacity());
}

bool Scheduler::pages_suffice(const RequestState& request) const {
  std::int32_t promised = 0;
  bool anybody_active = false;
  for (const RequestState* other : running_) {
    if (!is_active(*other)) {
      continue;
    }
    anybody_active = true;
    if (other->phase == Phase::kPrefill) {
      promised += std::max(0, pages_wanted(*other) - kv_cache_.num_pages(other->handle()));
    }
  }
  // Alone, a request has every page, now or when the steps in flight have completed.
  return !anybody_active || kv_cache_.num_available() - promised >= pages_wanted(request);
}

RequestState* Scheduler::resume_next() {
  const auto next = std::ranges::find(running_, Phase::kPreempted, &RequestState::phase);
  if (next == running_.end() || !pages_suffice(**next)) {
    return nullptr;
  }
  (*next)->phase = Phase::kPrefill;
  return *next;
}

RequestState* Scheduler::admit_next() {
  const bool preempted_wait = std::ranges::any_of(
      running_, [](const RequestState* request) { return request->phase == Phase::kPreempted; });
  if (preempted_wait || waiting_.empty() || !table_.has_free_row() ||
      !pages_suffice(*waiting_.front())) {
    return nullptr;
  }
  RequestState& request = *waiting_.front();
  waiting_.pop_front();
  table_.assign_row(request);
  request.phase = Phase::kPrefill;
  request.admission_number = ++num_admitted_;
  running_.push_back(&request);
  return &request;
}

std::span<const Scheduler::Share> Scheduler::next_step() {
  shares_.clear();
  prefilling_.clear();
  needs_.clear();
  for (RequestState* request : running_) {
    if (request->may_decode()) {
      shares_.push_back({request, 1});
    } else if (request->phase == Phase::kPrefill) {
      prefilling_.push_back(request);
      needs_.push_back(request->num_tokens() - request->num_computed);
    }
  }
  const std::size_t num_decoding = shares_.size();
  const std::int32_t budget =
      config_.max_num_batched_tokens - static_cast<std::int32_t>(shares_.size());
  fair_shares(needs_, budget, grants_);
  for (std::size_t index = 0; index < prefilling_.size(); ++index) {
    if (grants_[index] > 0) {
      shares_.push_back({prefilling_[index], grants_[index]});
    }
  }
  if (shares_.size() == num_decoding &&
      num_decoding > static_cast<std::size_t>(config_.max_decode_lanes)) {
    take_turns();
  }
  return shares_;
}

/// Keeps as many lanes as make all parts alike, behind those that had the turn before.
void Scheduler::take_turns() {
  const std::size_t most = static_cast<std::size_t>(config_.max_decode_lanes);
  const std::size_t num_parts = (shares_.size() + most - 1) / most;
  const std::size_t size = (shares_.size() + num_parts - 1) / num_parts;
  next_turn_ %= shares_.size();
  std::ranges::rotate(shares_, shares_.begin() + static_cast<std::ptrdiff_t>(next_turn_));
  shares_.resize(size);
  next_turn_ += size;
}

RequestState* Scheduler::preempt_newest() {
  RequestState* newest = nullptr;
  std::size_t num_active = 0;
  for (RequestState* request : running_) {
    if (is_active(*request)) {
      newest = request;
      ++num_active;
    }
  }
  if (num_active < 2) {
    return nullptr;
  }
  newest->phase = Phase::kPreempted;
  newest->num_computed = 0;
  newest->whole_row.reset();
  if (newest->info.num_generated == 0) {
    newest->scores = {};
  }
  ++newest->num_preemptions;
  return newest;
}

}  // namespace rigel
