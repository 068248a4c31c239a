// The worker's way from a completed step to its requests.

#include "tensor/error.h"
#include "worker/row_results.h"
#include "worker/worker.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace rigel {

void Worker::complete_step() {
  if (composite_ != nullptr) {
    complete_composite_step();
    return;
  }
  FlyingStep& step = step_of(engine_->last_completed() + 1);
  try {
    take_results(step);
  } catch (const DeviceError& error) {
    fail_everything(error.what());
  } catch (const std::exception& error) {
    // Who had his part already has ended with it or ends here.
    table_.collect(engine_->last_completed());
    fail_step(step, error.what());
  }
  unmark_ended();
}

/// A prompt is counted where it ends: computed or found in the prefix cache, and once, however often it was preempted.
void Worker::count_prompts(const FlyingStep& step) {
  for (const RequestHandle handle : step.prompt_ends) {
    const RequestState* const request = table_.find(handle);
    if (request != nullptr && request->info.num_generated == 0) {
      metrics_.prompt_tokens.add(request->info.num_prompt_tokens);
    }
  }
}

void Worker::take_results(FlyingStep& step) {
  HostRows rows = engine_->complete();
  table_.collect(engine_->last_completed());
  now_ = Clock::now();
  if (const auto idle = idle_clock_.idle_before(engine_->last_completed())) {
    metrics_.gpu_idle.observe(*idle);
  }
  const std::int32_t num_turns = engine_->completed_turns();
  if (config_.steps_per_launch > 1) {
    if (step.prompts.empty()) {
      metrics_.steps_per_launch.observe(num_turns);
    }
    metrics_.wasted(WasteReason::kStopString)
        .add(std::int64_t{num_turns - 1} * std::exchange(num_met_in_turns_, 0));
  }
  take_turn(step, rows);
  for (std::int32_t turn = 1; turn < num_turns; ++turn) {
    begin_turn(step);
    rows = engine_->rows_of_turn(turn);
    take_turn(step, rows);
  }
}

/// The step's lanes have gone on to the next turn by themselves, so nobody has ended: as if that had been launched as a step.
void Worker::begin_turn(FlyingStep& step) {
  clock_.enter(StepPhase::kSettle);
  ready_.handles.clear();
  for (const RequestHandle handle : step.decoding()) {
    if (table_.contains(handle)) {
      ++table_.num_pending(handle);
      ready_.handles.push_back(handle);
    }
  }
  std::ignore = walks_.pop(kDecodeNode, ready_.handles, /*check_ready=*/false);
  step.batch.advance_loop(Names::kDecodeLoop);
}

void Worker::take_turn(const FlyingStep& step, const HostRows& rows) {
  find_stops(step, rows);
  advance_walks(step);
  clock_.enter(StepPhase::kRoute);
  count_prompts(step);
  take_scores(step, rows);
  take_tokens(step, rows);
  end_prompts(step);
}

void Worker::take_scores(const FlyingStep& step, const HostRows& rows) {
  std::int64_t row = 0;
  std::int64_t num_last_logits = 0;
  for (const PromptLane& lane : step.prompts) {
    if (!lane.scoring) {
      continue;
    }
    const ScoredChunk chunk{.first_row = row,
                            .num_rows = lane.num_tokens,
                            .num_top = lane.scoring->num_top,
                            .ends_prompt = lane.ends_prompt};
    row += lane.num_tokens;
    const bool has_logits = lane.ends_prompt && lane.scoring->keep_last_logits;
    num_last_logits += has_logits ? 1 : 0;
    RequestState* request = table_.find(lane.handle);
    if (request == nullptr) {
      continue;
    }
    append_scores(rows, chunk, request->scores);
    if (has_logits) {
      const auto logits =
          rows.find(Names::kLastLogits).select(0, num_last_logits - 1).span<const float>();
      request->scores.last_logits.assign(logits.begin(), logits.end());
    }
  }
}

void Worker::end_prompts(const FlyingStep& step) {
  for (const PromptLane& lane : step.prompts) {
    RequestState* request = table_.find(lane.handle);
    if (request == nullptr || !lane.ends_prompt) {
      continue;
    }
    keep_prefix(*request);
    if (!lane.samples) {
      finish(*request, FinishReason::kLength, "");
    }
  }
}

void Worker::find_stops(const FlyingStep& step, const HostRows& rows) {
  views_.clear();
  const std::span<const RequestHandle> handles = step.batch.handles();
  const std::span<const InputMetadata> metadata = step.batch.metadata();
  const std::span<const RequestInfo* const> infos = step.batch.infos();
  const bool all_are_here = table_.num_released() == step.num_released;
  for (std::size_t lane = 0; lane < handles.size(); ++lane) {
    if (step.samples(lane) && (all_are_here || table_.contains(handles[lane]))) {
      views_.emplace_back(*infos[lane], metadata[lane]);
    }
  }
  stops_ = engine_->check_stop(views_, rows);
  finish_failed();
}

/// The walks take in what the step has done. A decode loop ends where the step was its last, or with a stop; a stop after the
/// prompt's own token comes before the first iteration. A lane whose request has ended meanwhile was computed for nothing.
void Worker::advance_walks(const FlyingStep& step) {
  walks_.stop_loops(kDecodeNode, stops_, stopped_);
  for (const LoopStop& stop : stops_) {
    if (stop.loop == Names::kDecodeLoop) {
      mark_ended(stop.handle);
    }
  }
  for (const auto& [node, handles] : {std::pair(kDecodeNode, step.decoding()),
                                      std::pair(kPrefillNode, std::span(step.prompt_ends))}) {
    walks_.land_and_route(node, handles, wasted_, routed_);
    for (const RequestHandle handle : routed_.finished_walks) {
      mark_ended(handle);
    }
  }
}

void Worker::mark_ended(RequestHandle handle) {
  std::uint8_t& ends = ends_row_[static_cast<std::size_t>(handle.row)];
  if (ends == 0) {
    ends = 1;
    ended_.push_back(handle);
  }
}

void Worker::unmark_ended() {
  for (const RequestHandle handle : ended_) {
    ends_row_[static_cast<std::size_t>(handle.row)] = 0;
  }
  ended_.clear();
}

inline void Worker::count_token(RequestState& request) {
  const Clock::time_point now = now_;
  if (request.info.num_generated == 1) {
    const auto seconds_since = [now](Clock::time_point then) {
      return std::chrono::duration<double>(now - then).count();
    };
    request.first_token = now;
    metrics_.time_to_first_token.observe(seconds_since(request.arrived));
    metrics_.prefill_time.observe(seconds_since(request.admitted));
  } else {
    // Requests that got their last token from the same step share its time: they are counted together.
    if (request.last_token != same_last_token_) {
      count_latencies();
      same_last_token_ = request.last_token;
    }
    ++num_same_;
  }
  request.last_token = now;
}

void Worker::take_tokens(const FlyingStep& step, const HostRows& rows) {
  const ConstHostView tokens = rows.find(Names::kNewToken);
  if (!tokens.defined()) {
    return;
  }
  const auto* token = tokens.data<std::int32_t>();
  std::vector<StepOutput>& outputs = dispatcher_.message().outputs;
  const std::span<const RequestHandle> handles = rows.handles;
  const bool all_are_here = table_.num_released() == step.num_released;
  std::int64_t num_taken = 0;
  for (std::size_t row = 0; row < handles.size(); ++row) {
    table_.prefetch_beyond(handles, row);
    const RequestHandle handle = handles[row];
    RequestState* const found = all_are_here ? table_.owner(handle) : table_.find(handle);
    if (found == nullptr) {
      continue;
    }
    RequestState& request = *found;
    --table_.num_pending(handle);
    const std::int32_t id = token[row];
    if (id < 0) {
      finish(request, FinishReason::kError, "the model gave no finite logits for this request");
      continue;
    }
    ++num_taken;
    request.append_token(id);
    ++request.info.num_generated;
    count_token(request);
    StepOutput& output = outputs.emplace_back(StepOutput{.id = request.id, .token = id});
    if (request.info.num_generated == 1) {
      dispatcher_.message().details_of(output).num_cached_tokens = request.num_cached_tokens;
    }
    if (request.wants_logprobs) {
      take_logprobs(rows, row, request.info.sampling.num_logprobs, output);
    }
    if (ends_row_[static_cast<std::size_t>(handle.row)] != 0) {
      end_with_token(request, output);
    }
  }
  count_latencies();
  metrics_.generation_tokens.add(num_taken);
}

/// The token was the request's last: it met a stop token or its length.
void Worker::end_with_token(RequestState& request, StepOutput& output) {
  const auto& stop_ids = request.info.sampling.stop_token_ids;
  const bool met_stop_token = request.info.num_generated > request.info.sampling.min_tokens &&
                              std::ranges::find(stop_ids, output.token) != stop_ids.end();
  dispatcher_.message().details_of(output).shows_token =
      !met_stop_token || request.spec.sampling.include_stop_in_output;
  // A lane that was launched before this stop was known is computed for nothing; a length is known before.
  metrics_.wasted(met_stop_token ? WasteReason::kStopToken : WasteReason::kLength)
      .add(table_.num_pending(request));
  finish(request, met_stop_token ? FinishReason::kStop : FinishReason::kLength, "");
}

void Worker::take_logprobs(const HostRows& rows, std::size_t row, int num_top, StepOutput& output) {
  std::vector<TokenLogprob>& logprobs = dispatcher_.message().logprobs;
  OutputDetails& details = dispatcher_.message().details_of(output);
  details.first_logprob = static_cast<std::int32_t>(logprobs.size());
  append_logprobs(rows, row, output.token, num_top, logprobs);
  details.num_logprobs = static_cast<std::int32_t>(logprobs.size()) - details.first_logprob;
}

void Worker::count_latencies() {
  if (num_same_ > 0) {
    const std::chrono::duration<double> latency = now_ - same_last_token_;
    metrics_.inter_token_latency.observe(latency.count(), num_same_);
    num_same_ = 0;
  }
}

}  // namespace rigel
