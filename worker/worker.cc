#include "worker/worker.h"

#include <algorithm>
#include <utility>

#include "model/language_model_names.h"
#include "tensor/error.h"
#include "worker/row_results.h"

namespace rigel {

using Phase = RequestState::Phase;
using Names = LanguageModelNames;

Worker::Worker(std::unique_ptr<Engine> engine, const KvCache& kv_cache, const WorkerConfig& config,
               Dispatcher& dispatcher)
    : engine_(std::move(engine)),
      kv_cache_(kv_cache),
      config_(config),
      dispatcher_(dispatcher),
      table_(config.num_rows),
      scheduler_(table_, kv_cache, {config.max_num_batched_tokens}),
      thread_([this] { run(); }) {}

Worker::~Worker() { stop(); }

void Worker::stop() {
  if (thread_.joinable()) {
    mailbox_.put(Shutdown{});
    thread_.join();
  }
}

void Worker::submit(RequestId id, GenerationRequest request) {
  num_unfinished_.fetch_add(1, std::memory_order_relaxed);
  mailbox_.put(Submission{id, std::move(request), Clock::now()});
}

void Worker::cancel(RequestId id) { mailbox_.put(Cancellation{id}); }

void Worker::end_at_stop_string(RequestId id) { mailbox_.put(StopStringMet{id}); }

void Worker::run() {
  bool idle = true;
  while (true) {
    read_mail(/*wait=*/idle);
    if (shutting_down_) {
      break;
    }
    admit();
    idle = !launch_step();
    if (!idle) {
      complete_step();
    }
    post_outputs();
  }
  while (table_.size() > 0) {
    finish(table_.any(), FinishReason::kCancelled, "");
  }
  post_outputs();
}

void Worker::read_mail(bool wait) {
  if (wait) {
    update_gauges();
    mailbox_.wait_and_take(letters_);
  } else {
    mailbox_.take(letters_);
  }
  for (Letter& letter : letters_) {
    if (auto* submission = std::get_if<Submission>(&letter)) {
      accept(std::move(*submission));
    } else if (const auto* cancellation = std::get_if<Cancellation>(&letter)) {
      if (RequestState* request = table_.find(cancellation->id)) {
        finish(*request, FinishReason::kCancelled, "");
      }
    } else if (const auto* stop = std::get_if<StopStringMet>(&letter)) {
      if (RequestState* request = table_.find(stop->id)) {
        // What the request was given after the token that completed its stop string was computed for nothing.
        finish(*request, FinishReason::kStop, "");
      }
    } else {
      shutting_down_ = true;
    }
  }
}

void Worker::accept(Submission submission) {
  auto request = std::make_unique<RequestState>();
  request->id = submission.id;
  request->spec = std::move(submission.request);
  request->arrived = submission.arrived;
  request->tokens = request->spec.prompt;

  const SamplingParams& sampling = request->spec.sampling;
  RequestInfo& info = request->info;
  info.num_prompt_tokens = request->num_tokens();
  info.max_tokens = sampling.max_tokens;
  info.max_length = config_.max_length;
  info.seed = sampling.seed.value_or(config_.seed + static_cast<std::uint64_t>(request->id));
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
  config.logit_bias = sampling.logit_bias;
  config.stop_token_ids = sampling.stop_token_ids;
  if (!sampling.ignore_eos) {
    config.stop_token_ids.insert(config.stop_token_ids.end(), config_.eos_ids.begin(),
                                 config_.eos_ids.end());
  }
  metrics_.prompt_tokens.add(info.num_prompt_tokens);
  RequestState& accepted = table_.accept(std::move(request));
  scheduler_.enqueue(accepted);
  if (!healthy()) {
    finish(accepted, FinishReason::kError, "the device has failed; this worker runs no requests");
  }
}

void Worker::admit() {
  scheduler_.resume();
  while (RequestState* request = scheduler_.admit_next()) {
    open_row(*request);
  }
}

void Worker::open_row(RequestState& request) {
  request.admitted = Clock::now();
  metrics_.queue_time.observe(
      std::chrono::duration<double>(request.admitted - request.arrived).count());
  engine_->add_request(request.info);
}

bool Worker::launch_step() {
  const Clock::time_point begin = Clock::now();
  while (true) {
    build_batch(scheduler_.next_step());
    if (batch_.empty()) {
      return false;
    }
    AdmitOutcome outcome;
    try {
      outcome = engine_->launch(batch_);
    } catch (const DeviceError& error) {
      fail_everything(error.what());
      return false;
    } catch (const std::exception& error) {
      fail_batch(error.what());
      return engine_->num_in_flight() > 0;
    }
    if (outcome.ok()) {
      break;
    }
    RequestState* victim = scheduler_.preempt_newest();
    if (victim == nullptr) {
      RequestState* blamed = table_.find(outcome.handle);
      finish(*blamed, FinishReason::kError, "the KV cache cannot hold this request");
      continue;
    }
    metrics_.num_preemptions.add(1);
    engine_->restart_request(victim->handle());
  }
  after_launch();
  metrics_.host_step.observe(std::chrono::duration<double>(Clock::now() - begin).count());
  return true;
}

void Worker::build_batch(std::span<const Scheduler::Share> shares) {
  batch_.clear();
  lanes_.clear();
  batch_.walk = Names::kDecode;
  for (const Scheduler::Share& share : shares) {
    if (add_lane(share)) {
      lanes_.push_back(share);
      if (share.request->phase == Phase::kPrefill) {
        batch_.walk = Names::kMixed;
      }
    }
  }
}

bool Worker::add_lane(const Scheduler::Share& share) {
  RequestState& request = *share.request;
  InputMetadata metadata;
  metadata.loop_counters.set(Names::kDecodeLoop, request.info.num_generated);
  if (request.phase == Phase::kDecode) {
    batch_.add(request.handle(), request.info, std::move(metadata),
               *engine_->submodule().uniform_row_inputs(Names::kDecode));
    return true;
  }
  try {
    const RequestView view(request.info, metadata);
    if (request.whole_row == nullptr) {
      SignalMap signals;
      signals.assign(Names::kTextInputs, {Tensor::copy_of(std::span<const std::int32_t>(
                                             request.tokens))});
      request.whole_row = engine_->submodule().prepare_inputs(
          PrepareContext{Names::kPrefill, &signals, false}, view);
    }
    auto part = engine_->submodule().split_inputs(view, *request.whole_row, request.num_computed,
                                                  request.num_computed + share.num_tokens);
    batch_.add(request.handle(), request.info, std::move(metadata), std::move(part));
  } catch (const std::exception& error) {
    finish(request, FinishReason::kError, error.what());
    return false;
  }
  return true;
}

void Worker::after_launch() {
  for (const Scheduler::Share& lane : lanes_) {
    lane.request->num_computed += lane.num_tokens;
  }
}

void Worker::complete_step() {
  try {
    const HostRows rows = engine_->complete();
    take_scores(rows);
    take_tokens(rows);
    end_prompts();
  } catch (const DeviceError& error) {
    fail_everything(error.what());
  }
  update_gauges();
}

void Worker::take_scores(const HostRows& rows) {
  std::int64_t row = 0;
  std::int64_t num_last_logits = 0;
  for (std::size_t index = 0; index < lanes_.size(); ++index) {
    const Scheduler::Share& lane = lanes_[index];
    RequestState& request = *lane.request;
    if (!request.info.scoring || request.info.num_generated > 0 ||
        request.phase != Phase::kPrefill) {
      continue;
    }
    const bool ends_prompt = batch_.inputs()[index]->is_final_chunk();
    append_scores(rows,
                  {.first_row = row,
                   .num_rows = lane.num_tokens,
                   .num_top = request.info.scoring->num_top,
                   .ends_prompt = ends_prompt},
                  request.scores);
    row += lane.num_tokens;
    if (ends_prompt && request.info.scoring->keep_last_logits) {
      const auto logits =
          rows.find(Names::kLastLogits).select(0, num_last_logits++).span<const float>();
      request.scores.last_logits.assign(logits.begin(), logits.end());
    }
  }
}

void Worker::end_prompts() {
  for (const Scheduler::Share& lane : lanes_) {
    RequestState* request = lane.request;
    if (request == nullptr || request->phase != Phase::kPrefill ||
        request->num_computed < request->num_tokens()) {
      continue;
    }
    if (request->info.max_tokens == 0) {
      finish(*request, FinishReason::kLength, "");
    }
  }
}

void Worker::take_tokens(const HostRows& rows) {
  views_.clear();
  stops_.clear();
  for (const RequestHandle handle : rows.handles) {
    const auto lane = std::ranges::find(batch_.handles(), handle) - batch_.handles().begin();
    views_.emplace_back(*batch_.infos()[static_cast<std::size_t>(lane)],
                        batch_.metadata()[static_cast<std::size_t>(lane)]);
  }
  if (!engine_->submodule().check_stop_batched(views_, rows, stops_)) {
    for (const RequestView& view : views_) {
      for (const LoopId loop : engine_->submodule().check_stop(view, rows)) {
        stops_.push_back({view.info().handle, loop});
      }
    }
  }
  for (std::size_t lane = 0; lane < rows.handles.size(); ++lane) {
    if (RequestState* request = table_.find(rows.handles[lane])) {
      const bool stops = std::ranges::any_of(stops_, [&](const LoopStop& stop) {
        return stop.handle == request->handle() && stop.loop == Names::kDecodeLoop;
      });
      take_token(*request, rows, lane, stops);
    }
  }
}

void Worker::take_token(RequestState& request, const HostRows& rows, std::size_t lane,
                        bool stops) {
  const std::int32_t token = rows.find(Names::kNewToken).span<std::int32_t>()[lane];
  if (token < 0) {
    finish(request, FinishReason::kError, "the model gave no finite logits for this request");
    return;
  }
  // Lanes move on: the token now belongs to the request.
  request.phase = Phase::kDecode;
  request.whole_row.reset();
  request.tokens.push_back(token);
  ++request.info.num_generated;
  count_token(request, Clock::now());

  StepOutput& output = output_of(request);
  output.token = token;
  const auto& stop_ids = request.info.sampling.stop_token_ids;
  const bool met_stop_token =
      stops && std::ranges::find(stop_ids, token) != stop_ids.end() &&
      request.info.num_generated > request.info.sampling.min_tokens;
  output.shows_token = !met_stop_token || request.spec.sampling.include_stop_in_output;
  if (const int count = request.info.sampling.num_logprobs; count >= 0) {
    append_logprobs(rows, lane, token, count, output.logprobs);
  }
  if (stops) {
    finish(request, met_stop_token ? FinishReason::kStop : FinishReason::kLength, "");
  }
}

void Worker::count_token(RequestState& request, Clock::time_point now) {
  metrics_.generation_tokens.add(1);
  const auto seconds_since = [now](Clock::time_point then) {
    return std::chrono::duration<double>(now - then).count();
  };
  if (request.info.num_generated == 1) {
    request.first_token = now;
    metrics_.time_to_first_token.observe(seconds_since(request.arrived));
    metrics_.prefill_time.observe(seconds_since(request.admitted));
  } else {
    metrics_.inter_token_latency.observe(seconds_since(request.last_token));
  }
  request.last_token = now;
}

StepOutput& Worker::output_of(RequestState& request) {
  // A request's outputs of a step are made one after the other, so only the newest can be its own.
  if (message_.outputs.empty() || message_.outputs.back().id != request.id) {
    message_.outputs.emplace_back().id = request.id;
  }
  return message_.outputs.back();
}

void Worker::finish(RequestState& request, FinishReason reason, std::string error) {
  StepOutput& output = output_of(request);
  output.finish = reason;
  output.error = std::move(error);
  if (request.info.scoring) {
    output.scores = std::make_unique<PromptScores>(std::move(request.scores));
  }
  metrics_.finished[static_cast<std::size_t>(reason)].add(1);
  const Clock::time_point now = Clock::now();
  metrics_.e2e_latency.observe(std::chrono::duration<double>(now - request.arrived).count());
  if (request.info.num_generated > 0) {
    metrics_.decode_time.observe(std::chrono::duration<double>(now - request.first_token).count());
  }
  for (Scheduler::Share& lane : lanes_) {
    if (lane.request == &request) {
      lane.request = nullptr;
    }
  }
  scheduler_.remove(request);
  if (!request.handle().is_padding()) {
    engine_->remove_request(request.handle());
  }
  table_.release(request);
  num_unfinished_.fetch_sub(1, std::memory_order_relaxed);
}

void Worker::fail_batch(const std::string& error) {
  const std::vector<Scheduler::Share> lanes = lanes_;
  for (const Scheduler::Share& lane : lanes) {
    finish(*lane.request, FinishReason::kError, error);
  }
}

void Worker::fail_everything(const std::string& error) {
  healthy_.store(false, std::memory_order_relaxed);
  while (table_.size() > 0) {
    finish(table_.any(), FinishReason::kError, error);
  }
}

void Worker::post_outputs() {
  if (!message_.outputs.empty()) {
    dispatcher_.post(std::exchange(message_, {}));
  }
}

void Worker::update_gauges() {
  metrics_.num_running.set(static_cast<std::int64_t>(scheduler_.running().size()));
  metrics_.num_waiting.set(static_cast<std::int64_t>(scheduler_.num_waiting()));
  const PageArena& arena = kv_cache_.arena();
  metrics_.pages_total.set(arena.capacity());
  metrics_.pages_in_use.set(arena.capacity() - arena.num_free());
}

}  // namespace rigel
