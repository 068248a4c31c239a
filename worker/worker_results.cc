// The worker's way from a completed step to its requests.

#include <algorithm>

#include "model/language_model_names.h"
#include "tensor/error.h"
#include "worker/row_results.h"
#include "worker/worker.h"

namespace rigel {

using Phase = RequestState::Phase;
using Names = LanguageModelNames;

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

}  // namespace rigel
