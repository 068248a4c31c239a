#include "worker/scheduler.h"

#include "model/language_model_names.h"
#include "tensor/error.h"
#include "worker/page_policy.h"
#include "worker/token_budget.h"

#include <algorithm>

namespace rigel {

using Phase = RequestState::Phase;

namespace {

PageHolder holder_of(const RequestState* request) {
  return {.handle = request->handle(),
          .num_tokens = request->num_tokens(),
          .is_active = request->phase == Phase::kRunning,
          .grows = request->info.walk == LanguageModelNames::kPrefill};
}

}  // namespace

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

bool Scheduler::pages_suffice(const RequestState& request) const {
  return kv_cache_ == nullptr ||
         rigel::pages_suffice(*kv_cache_, request.num_tokens(), running_, holder_of);
}

RequestState* Scheduler::next_to_resume() {
  RequestState* const next = first_waiting_for_pages();
  return next == nullptr || !pages_suffice(*next) ? nullptr : next;
}

/// Asked in every round, while somebody waits in few: no request is touched as long as nobody does.
RequestState* Scheduler::first_waiting_for_pages() {
  if (!may_wait_for_pages_) {
    return nullptr;
  }
  const auto first = std::ranges::find_if(running_, &Scheduler::waits_for_pages);
  may_wait_for_pages_ = first != running_.end();
  return may_wait_for_pages_ ? *first : nullptr;
}

bool Scheduler::waits_for_pages(const RequestState* request) {
  return request->phase == Phase::kPreempted || request->phase == Phase::kOffloaded;
}

RequestState* Scheduler::admit_next() {
  if (waiting_.empty() || !table_.has_free_row() || first_waiting_for_pages() != nullptr ||
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
  const auto newest = newest_active(running_, holder_of);
  return newest == running_.end() ? nullptr : *newest;
}

void Scheduler::preempt(RequestState& request) {
  request.phase = Phase::kPreempted;
  may_wait_for_pages_ = true;
  request.num_computed = 0;
  request.whole_row.reset();
  if (request.info.num_generated == 0) {
    request.scores = {};
  }
  ++request.num_preemptions;
}

void Scheduler::park(RequestState& request) {
  request.phase = Phase::kOffloaded;
  may_wait_for_pages_ = true;
  ++request.num_preemptions;
}

}  // namespace rigel
