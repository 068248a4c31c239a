#include "worker/scheduler.h"

#include "model/language_model_names.h"
#include "tensor/error.h"
#include "worker/token_budget.h"

#include <algorithm>

namespace rigel {

using Phase = RequestState::Phase;

Scheduler::Scheduler(RequestTable& table, const KvCache* kv_cache, const SchedulerConfig& config)
    : table_(table), kv_cache_(kv_cache), config_(config) {
  RIGEL_CHECK(kv_cache == nullptr || config.max_num_batched_tokens >= table.num_rows(),
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

std::int32_t Scheduler::pages_wanted(const RequestState& request) const {
  const std::int32_t wanted = kv_cache_->config().pages_for(request.num_tokens()) + 1;
  return std::min(wanted, kv_cache_->arena().capacity());
}

bool Scheduler::pages_suffice(const RequestState& request) const {
  if (kv_cache_ == nullptr) {
    return true;
  }
  std::int32_t promised = 0;
  bool anybody_active = false;
  for (const RequestState* other : running_) {
    if (other->phase != Phase::kRunning) {
      continue;
    }
    anybody_active = true;
    if (other->info.walk == LanguageModelNames::kPrefill) {
      promised += std::max(0, pages_wanted(*other) - kv_cache_->num_pages(other->handle()));
    }
  }
  // Alone, a request has every page, now or when the steps in flight have completed.
  return !anybody_active || kv_cache_->num_available() - promised >= pages_wanted(request);
}

RequestState* Scheduler::next_to_resume() {
  const auto next = std::ranges::find_if(running_, &Scheduler::waits_for_pages);
  return next == running_.end() || !pages_suffice(**next) ? nullptr : *next;
}

bool Scheduler::waits_for_pages(const RequestState* request) {
  return request->phase == Phase::kPreempted || request->phase == Phase::kOffloaded;
}

RequestState* Scheduler::admit_next() {
  if (waiting_.empty() || !table_.has_free_row() ||
      std::ranges::any_of(running_, &Scheduler::waits_for_pages) ||
      !pages_suffice(*waiting_.front())) {
    return nullptr;
  }
  RequestState& request = *waiting_.front();
  waiting_.pop_front();
  table_.assign_row(request);
  request.phase = Phase::kRunning;
  request.admission_number = ++num_admitted_;
  running_.push_back(&request);
  return &request;
}

std::span<const Scheduler::Share> Scheduler::share_prompts(std::span<const RequestHandle> prompts,
                                                           std::int32_t num_decoding) {
  shares_.clear();
  prompts_.clear();
  needs_.clear();
  for (const RequestHandle handle : prompts) {
    prompts_.push_back(table_.find(handle));
  }
  std::ranges::sort(prompts_, {}, &RequestState::admission_number);
  for (const RequestState* request : prompts_) {
    needs_.push_back(request->num_tokens() - request->num_computed);
  }
  fair_shares(needs_, config_.max_num_batched_tokens - num_decoding, grants_);
  for (std::size_t index = 0; index < prompts_.size(); ++index) {
    if (grants_[index] > 0) {
      shares_.push_back({prompts_[index], grants_[index]});
    }
  }
  return shares_;
}

RequestState* Scheduler::newest_running() {
  RequestState* newest = nullptr;
  std::size_t num_active = 0;
  for (RequestState* request : running_) {
    if (request->phase == Phase::kRunning) {
      newest = request;
      ++num_active;
    }
  }
  return num_active < 2 ? nullptr : newest;
}

void Scheduler::preempt(RequestState& request) {
  request.phase = Phase::kPreempted;
  request.num_computed = 0;
  request.whole_row.reset();
  if (request.info.num_generated == 0) {
    request.scores = {};
  }
  ++request.num_preemptions;
}

void Scheduler::park(RequestState& request) {
  request.phase = Phase::kOffloaded;
  ++request.num_preemptions;
}

}  // namespace rigel
