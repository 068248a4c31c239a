// The worker's way from a schedule to a launched step.

#include "model/language_model_names.h"
#include "tensor/error.h"
#include "worker/worker.h"

#include <algorithm>
#include <utility>

namespace rigel {

using Phase = RequestState::Phase;
using Names = LanguageModelNames;

bool Worker::launch_step() {
  FlyingStep& step = step_of(engine_->last_launched() + 1);
  AdmitOutcome outcome;
  do {
    clock_.enter(StepPhase::kBuild);
    try {
      build_step(step, scheduler_.next_step());
      if (step.batch.empty()) {
        return false;
      }
      idle_clock_.before_launch(engine_->stream(), engine_->last_launched() + 1);
      outcome = engine_->launch(step.batch);
      if (outcome.ok()) {
        idle_clock_.after_launch(engine_->stream(), engine_->last_launched());
      }
    } catch (const DeviceError& error) {
      fail_everything(error.what());
      return false;
    } catch (const std::exception& error) {
      idle_clock_.pause();
      fail_step(step, error.what());
      return false;
    }
    if (!outcome.ok() && !make_room(outcome)) {
      return false;
    }
  } while (!outcome.ok());
  clock_.enter(StepPhase::kSettle);
  after_launch(step);
  finish_failed();
  return true;
}

bool Worker::make_room(const AdmitOutcome& refusal) {
  if (engine_->num_in_flight() > 0) {
    // What the steps in flight give back may do; and nobody loses pages that a step in flight still fills.
    return false;
  }
  RequestState* victim = scheduler_.preempt_newest();
  if (victim == nullptr) {
    finish(*table_.find(refusal.handle), FinishReason::kError,
           "the KV cache cannot hold this request");
    return true;
  }
  metrics_.num_preemptions.add(1);
  keep_prefix(*victim);
  engine_->restart_request(victim->handle());
  return true;
}

void Worker::build_step(FlyingStep& step, std::span<const Scheduler::Share> shares) {
  step.batch.clear();
  step.lanes.clear();
  step.batch.walk = Names::kDecode;
  const NodeInputs* decode_row = engine_->submodule().uniform_row_inputs(Names::kDecode);
  for (const Scheduler::Share& share : shares) {
    RequestState& request = *share.request;
    if (request.phase == Phase::kDecode) {
      step.batch.add(request.handle(), request.info, *decode_row)
          .set(Names::kDecodeLoop, request.num_launched_tokens());
      step.lanes.push_back({.handle = request.handle(), .num_tokens = 1, .samples = true});
      continue;
    }
    const bool ends_prompt = request.num_computed + share.num_tokens == request.num_tokens();
    add_prefill_lane(step, share);
    step.lanes.push_back(
        {.handle = request.handle(),
         .num_tokens = share.num_tokens,
         .samples = ends_prompt && request.info.max_tokens > 0,
         .ends_prompt = ends_prompt,
         .scoring = request.info.num_generated == 0 ? request.info.scoring : std::nullopt});
    step.batch.walk = Names::kMixed;
  }
  if (step.batch.walk == Names::kMixed) {
    prepare_step(step);
  }
}

void Worker::add_prefill_lane(FlyingStep& step, const Scheduler::Share& share) {
  RequestState& request = *share.request;
  if (request.whole_row == nullptr) {
    request.settle_tokens();
    request.prefill_signals.assign(
        Names::kTextInputs, {Tensor::copy_of(std::span<const std::int32_t>(request.tokens))});
  }
  InputMetadata metadata;
  metadata.loop_counters.set(Names::kDecodeLoop, request.num_launched_tokens());
  step.batch.add(request.handle(), request.info, std::move(metadata),
                 LaneSource{.walk = Names::kPrefill,
                            .signals = &request.prefill_signals,
                            .whole_row = &request.whole_row,
                            .start = request.num_computed,
                            .end = request.num_computed + share.num_tokens});
}

void Worker::prepare_step(FlyingStep& step) {
  engine_->prepare_inputs(step.batch);
  finish_failed();
  // Lanes that failed left the batch, which kept its order.
  const std::span<const RequestHandle> handles = step.batch.handles();
  std::size_t kept = 0;
  std::erase_if(step.lanes, [&](const FlyingLane& lane) {
    const bool stays = kept < handles.size() && handles[kept] == lane.handle;
    kept += stays ? 1 : 0;
    return !stays;
  });
  const bool prefills = std::ranges::any_of(
      step.batch.sources(), [](const LaneSource& source) { return source.whole_row != nullptr; });
  // With more decode lanes than a captured step has, it stays what it was scheduled as.
  const bool is_split = static_cast<std::int32_t>(step.batch.size()) >
                        engine_->max_batch_size(Names::kDecode).value_or(config_.num_rows);
  step.batch.walk = prefills || is_split ? Names::kMixed : Names::kDecode;
}

void Worker::after_launch(const FlyingStep& step) {
  metrics_.graphs.count(*engine_);
  for (const FlyingLane& lane : step.lanes) {
    RequestState& request = *table_.find(lane.handle);
    request.num_computed += lane.num_tokens;
    if (lane.samples) {
      ++request.num_pending;
      request.phase = Phase::kDecode;
      request.whole_row.reset();
      request.prefill_signals.clear();
    }
  }
}

}  // namespace rigel
