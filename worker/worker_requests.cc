// A request's life in the worker: acceptance, its row, its end.

#include "tensor/error.h"
#include "worker/composite.h"
#include "worker/worker.h"

#include <algorithm>
#include <utility>

namespace rigel {

namespace {

// Kernels edit the entries of a request side by side, so each token has one entry.

void merge_entries(std::vector<std::int32_t>& tokens) {
  std::ranges::sort(tokens);
  tokens.erase(std::ranges::unique(tokens).begin(), tokens.end());
}

void merge_entries(std::vector<std::pair<std::int32_t, float>>& biases) {
  std::ranges::stable_sort(biases, {}, &std::pair<std::int32_t, float>::first);
  std::size_t num_merged = 0;
  for (const auto& [token, bias] : biases) {
    if (num_merged > 0 && biases[num_merged - 1].first == token) {
      biases[num_merged - 1].second += bias;
    } else {
      biases[num_merged++] = {token, bias};
    }
  }
  biases.resize(num_merged);
}

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
std::uint64_t split_mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// Runs with neighbouring bases share no streams, as base + index would.
std::uint64_t mixed_seed(std::uint64_t base, std::uint64_t index) {
  return split_mix(split_mix(base) + index);
}

}  // namespace

void Worker::accept(Submission submission) {
  auto request = std::make_unique<RequestState>();
  request->id = submission.id;
  request->spec = std::move(submission.request);
  request->arrived = submission.arrived;
  request->tokens = std::move(request->spec.prompt);

  const SamplingParams& sampling = request->spec.sampling;
  RequestInfo& info = request->info;
  info.num_prompt_tokens = request->num_tokens();
  info.max_tokens = sampling.max_tokens;
  info.max_length = config_.max_length;
  info.seed =
      sampling.seed.value_or(mixed_seed(config_.seed, static_cast<std::uint64_t>(request->id)));
  if (request->spec.prompt_top) {
    info.scoring = PromptScoring{*request->spec.prompt_top, request->spec.keep_last_logits};
  }
  SamplingConfig& config = info.sampling;
  config.temperature = sampling.temperature;
  config.top_p = sampling.top_p;
  config.min_p = sampling.min_p;
  config.top_k = sampling.top_k;
  config.repetition_penalty = sampling.repetition_penalty;
  config.presence_penalty = sampling.presence_penalty;
  config.frequency_penalty = sampling.frequency_penalty;
  config.min_tokens = sampling.min_tokens;
  config.num_logprobs = sampling.logprobs.value_or(-1);
  request->wants_logprobs = config.num_logprobs >= 0;
  config.logit_bias = sampling.logit_bias;
  config.stop_token_ids = sampling.stop_token_ids;
  if (!sampling.ignore_eos) {
    config.stop_token_ids.insert(config.stop_token_ids.end(), config_.eos_ids.begin(),
                                 config_.eos_ids.end());
  }
  merge_entries(config.stop_token_ids);
  merge_entries(config.logit_bias);
  std::string request_error = find_error(request->spec);
  num_with_stop_strings_ += sampling.stop.empty() ? 0 : 1;
  RequestState& accepted = table_.accept(std::move(request));
  scheduler_.enqueue(accepted);
  if (!request_error.empty()) {
    finish(accepted, FinishReason::kError, std::move(request_error));
  } else if (!healthy()) {
    finish(accepted, FinishReason::kError, "this worker runs no requests: " + why_unhealthy_);
  }
}

std::string Worker::find_error(const GenerationRequest& request) const {
  if (composite_ != nullptr) {
    if (!request.prompt.empty()) {
      return "prompt: this model takes named inputs and no tokens";
    }
    return request.prompt_top ? "prompt_top: this model scores no prompts"
                              : composite_->find_error(request);
  }
  return request.inputs.empty() ? "" : "inputs: this model takes a prompt and nothing else";
}

void Worker::admit() {
  while (RequestState* request = scheduler_.next_to_resume()) {
    if (!resume(*request)) {
      break;
    }
  }
  while (RequestState* request = scheduler_.admit_next()) {
    try {
      open_row(*request);
    } catch (const DeviceError&) {
      throw;
    } catch (const std::exception& error) {
      finish(*request, FinishReason::kError, error.what());
    }
  }
}

bool Worker::resume(RequestState& request) {
  const RequestHandle handle = request.handle();
  if (request.phase == RequestState::Phase::kOffloaded) {
    if (!engine_->reload_request(handle)) {
      return false;
    }
    offloaded_.erase(handle.row);
  } else {
    reuse_prefix(request);
    signal_text_inputs(handle);
  }
  request.phase = RequestState::Phase::kRunning;
  return true;
}

void Worker::open_row(RequestState& request) {
  request.admitted = Clock::now();
  metrics_.queue_time.observe(
      std::chrono::duration<double>(request.admitted - request.arrived).count());
  if (composite_ != nullptr) {
    composite_->open(request);
    return;
  }
  // To its limit, so that no step makes it grow.
  const std::int64_t longest =
      std::int64_t{request.info.num_prompt_tokens} + request.info.max_tokens;
  request.tokens.reserve(
      static_cast<std::size_t>(std::min<std::int64_t>(longest, request.info.max_length)));
  request.info.walk = Names::kPrefill;
  request.info.partition = Names::kPartition;
  engine_->add_request(request.info);
  walks_.add_request(request.handle(), Names::kPartition, Names::kPrefill);
  reuse_prefix(request);
  signal_text_inputs(request.handle());
  request.num_cached_tokens = request.num_computed;
}

void Worker::reuse_prefix(RequestState& request) {
  if (request.info.scoring && request.info.num_generated == 0) {
    return;  // asks about every position
  }
  request.settle_tokens();
  request.num_computed = kv_cache_->match_prefix(request.handle(), request.tokens);
  request.info.num_cached_tokens = request.num_computed;
  metrics_.prefix_cache_queries.add(request.num_tokens());
  metrics_.prefix_cache_hits.add(request.num_computed);
}

void Worker::keep_prefix(RequestState& request) {
  request.settle_tokens();
  kv_cache_->extend_prefix(request.handle(), request.tokens);
}

StepOutput& Worker::output_of(RequestState& request) {
  std::vector<StepOutput>& outputs = dispatcher_.message().outputs;
  // A request's outputs of a step are made one after the other, so only the newest can be its own.
  if (outputs.empty() || outputs.back().id != request.id) {
    StepOutput& output = outputs.emplace_back(StepOutput{.id = request.id});
    dispatcher_.message().details_of(output).num_cached_tokens = request.num_cached_tokens;
  }
  return outputs.back();
}

void Worker::finish(RequestState& request, FinishReason reason, std::string error) {
  Epoch last_touch = 0;
  const std::int64_t num_pending = composite_ == nullptr
                                       ? table_.num_pending(request)
                                       : composite_->num_lanes_in_flight(request.handle());
  if (!request.handle().is_padding() && !has_given_up_) {
    try {
      last_touch = close_row(request, reason);
    } catch (const DeviceError&) {
      throw;
    } catch (const std::exception& thrown) {
      has_given_up_ = true;  // the others end with this round
      why_unhealthy_ = thrown.what();
      reason = FinishReason::kError;
      error = thrown.what();
    }
  }
  StepOutput& output = output_of(request);
  std::vector<RequestEnding>& endings = dispatcher_.message().endings;
  dispatcher_.message().details_of(output).ending = static_cast<std::int32_t>(endings.size());
  RequestEnding& ending = endings.emplace_back();
  ending.reason = reason;
  ending.error = std::move(error);
  if (request.info.scoring) {
    ending.scores = std::make_unique<PromptScores>(std::move(request.scores));
  }
  num_with_stop_strings_ -= request.spec.sampling.stop.empty() ? 0 : 1;
  metrics_.finished[static_cast<std::size_t>(reason)].add(1);
  if (reason == FinishReason::kCancelled || reason == FinishReason::kError) {
    metrics_.wasted(reason == FinishReason::kError ? WasteReason::kError : WasteReason::kCancelled)
        .add(num_pending);
  }
  const Clock::time_point now = Clock::now();
  metrics_.e2e_latency.observe(std::chrono::duration<double>(now - request.arrived).count());
  if (request.first_token != Clock::time_point()) {
    metrics_.decode_time.observe(std::chrono::duration<double>(now - request.first_token).count());
  }
  scheduler_.remove(request);
  table_.release(request, last_touch);
  num_unfinished_.fetch_sub(1, std::memory_order_relaxed);
}

/// The last step that touches the row.
Epoch Worker::close_row(RequestState& request, FinishReason reason) {
  const RequestHandle handle = request.handle();
  if (composite_ != nullptr) {
    return composite_->remove(handle);
  }
  const Epoch last_touch = engine_->last_touch(handle);
  if (reason != FinishReason::kError && !offloaded_.contains(handle.row)) {
    keep_prefix(request);
  }
  offloaded_.erase(handle.row);
  engine_->remove_request(handle);
  walks_.remove_request(handle);
  return last_touch;
}

void Worker::finish_failed() {
  failures_.clear();
  engine_->take_failures(failures_);
  for (RequestFailure& failure : failures_) {
    if (RequestState* request = table_.find(failure.handle)) {
      finish(*request, FinishReason::kError, std::move(failure.message));
    }
  }
}

void Worker::fail_step(FlyingStep& step, const std::string& error) {
  abandon_speculation(step);
  for (const RequestHandle handle : step.batch.handles()) {
    if (RequestState* request = table_.find(handle)) {
      finish(*request, FinishReason::kError, error);
    }
  }
}

/// The device has failed: the rows close as ever, and later requests are refused.
void Worker::fail_everything(const std::string& error) {
  why_unhealthy_ = error;
  healthy_.store(false, std::memory_order_relaxed);
  while (table_.size() > 0) {
    finish(table_.any(), FinishReason::kError, error);
  }
}

/// What was thrown belongs to no request and no batch: nobody knows in what state it left rows and resources, so they are not
/// touched again.
void Worker::give_up(const std::string& error) {
  const std::string first = std::exchange(has_given_up_, true) ? why_unhealthy_ : error;
  fail_everything(first);
}

}  // namespace rigel
