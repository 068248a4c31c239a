// The worker's way from a completed step to its requests.

#include "model/language_model_names.h"
#include "tensor/error.h"
#include "worker/row_results.h"
#include "worker/worker.h"

#include <algorithm>

namespace rigel {

using Names = LanguageModelNames;

void Worker::complete_step() {
  const FlyingStep& step = step_of(engine_->last_completed() + 1);
  try {
    const HostRows rows = engine_->complete();
    table_.collect(engine_->last_completed());
    take_scores(step, rows);
    take_tokens(step, rows);
    end_prompts(step);
  } catch (const DeviceError& error) {
    fail_everything(error.what());
  }
  update_gauges();
}

void Worker::take_scores(const FlyingStep& step, const HostRows& rows) {
  std::int64_t row = 0;
  std::int64_t num_last_logits = 0;
  for (const FlyingLane& lane : step.lanes) {
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
  for (const FlyingLane& lane : step.lanes) {
    RequestState* request = table_.find(lane.handle);
    if (request != nullptr && lane.ends_prompt && !lane.samples) {
      finish(*request, FinishReason::kLength, "");
    }
  }
}

void Worker::take_tokens(const FlyingStep& step, const HostRows& rows) {
  views_.clear();
  stops_.clear();
  for (std::size_t index = 0; index < step.lanes.size(); ++index) {
    const RequestState* request =
        step.lanes[index].samples ? table_.find(step.lanes[index].handle) : nullptr;
    if (request != nullptr) {
      views_.emplace_back(request->info, step.batch.metadata()[index]);
    }
  }
  if (!engine_->submodule().check_stop_batched(views_, rows, stops_)) {
    for (const RequestView& view : views_) {
      for (const LoopId loop : engine_->submodule().check_stop(view, rows)) {
        stops_.push_back({view.info().handle, loop});
      }
    }
  }
  for (std::size_t row = 0; row < rows.handles.size(); ++row) {
    if (RequestState* request = table_.find(rows.handles[row])) {
      --request->num_pending;
      const bool stops = std::ranges::any_of(stops_, [&](const LoopStop& stop) {
        return stop.handle == request->handle() && stop.loop == Names::kDecodeLoop;
      });
      take_token(*request, rows, row, stops);
    }
  }
}

void Worker::take_token(RequestState& request, const HostRows& rows, std::size_t row, bool stops) {
  const std::int32_t token = rows.find(Names::kNewToken).span<std::int32_t>()[row];
  if (token < 0) {
    finish(request, FinishReason::kError, "the model gave no finite logits for this request");
    return;
  }
  request.tokens.push_back(token);
  ++request.info.num_generated;
  count_token(request, Clock::now());

  StepOutput& output = output_of(request);
  output.token = token;
  const auto& stop_ids = request.info.sampling.stop_token_ids;
  const bool met_stop_token = stops && std::ranges::find(stop_ids, token) != stop_ids.end() &&
                              request.info.num_generated > request.info.sampling.min_tokens;
  output.shows_token = !met_stop_token || request.spec.sampling.include_stop_in_output;
  if (const int count = request.info.sampling.num_logprobs; count >= 0) {
    append_logprobs(rows, row, token, count, output.logprobs);
  }
  if (stops) {
    // A lane that was launched before this stop was known is computed for nothing; a length is known before.
    metrics_.wasted_row_steps[0].add(request.num_pending);
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

}  // namespace rigel
