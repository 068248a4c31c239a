// The worker's way from a schedule to a launched step.

#include "tensor/error.h"
#include "worker/worker.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace rigel {

void Worker::FlyingStep::clear() {
  batch.clear();
  prompts.clear();
  prompt_ends.clear();
  num_continuing = 0;
  num_decoding = 0;
}

bool Worker::launch_step() {
  if (composite_ != nullptr) {
    return launch_composite_step();
  }
  FlyingStep& step = step_of(engine_->last_launched() + 1);
  AdmitOutcome outcome;
  do {
    clock_.enter(StepPhase::kBuild);
    try {
      build_step(step);
      if (step.batch.empty()) {
        put_back(step);
        return false;
      }
      idle_clock_.before_launch(engine_->stream(), engine_->last_launched() + 1);
      outcome = engine_->launch(step.batch);
      if (outcome.ok()) {
        idle_clock_.after_launch(engine_->stream(), engine_->last_launched());
      }
    } catch (const DeviceError& error) {
      abandon_speculation(step);
      fail_everything(error.what());
      return false;
    } catch (const std::exception& error) {
      idle_clock_.pause();
      fail_step(step, error.what());
      return false;
    }
    if (!outcome.ok()) {
      put_back(step);
      if (!make_room(outcome)) {
        return false;
      }
    }
  } while (!outcome.ok());
  if (config_.step_log != nullptr) {
    idle_seconds_ = std::chrono::duration<float>(Clock::now() - now_).count();
  }
  clock_.enter(StepPhase::kSettle);
  try {
    after_launch(step);
    finish_failed();
  } catch (const DeviceError&) {
    throw;
  } catch (const std::exception& error) {
    fail_step(step, error.what());
  }
  return true;
}

bool Worker::make_room(const AdmitOutcome& refusal) {
  if (engine_->num_in_flight() > 0) {
    // What the steps in flight give back may do; and nobody loses pages that a step in flight still fills.
    return false;
  }
  RequestState* victim = scheduler_.newest_running();
  if (victim == nullptr) {
    finish(*table_.find(refusal.handle), FinishReason::kError,
           "the KV cache cannot hold this request");
    return true;
  }
  metrics_.num_preemptions.add(1);
  if (engine_->offload_request(victim->handle())) {
    metrics_.num_offloads.add(1);
    scheduler_.park(*victim);
    offloaded_.insert(victim->handle().row);
    return true;
  }
  scheduler_.preempt(*victim);
  keep_prefix(*victim);
  engine_->restart_request(victim->handle());
  victim->info.walk = Names::kPrefill;
  walks_.set_walk(victim->handle(), Names::kPrefill);
  return true;
}

void Worker::build_step(FlyingStep& step) {
  step.clear();
  add_decode_lanes(step);
  add_prompt_lanes(step);
}

/// Rows of the step in flight go on from it, one step ahead of its values; the others decode from what is there. Where they
/// are more than a step may have they take turns: those that wait come first, and the longest in the step in front stay out.
void Worker::add_decode_lanes(FlyingStep& step) {
  step.batch.walk = Names::kDecode;
  walks_.ready_nodes(&offloaded_, kDecodeNode, std::nullopt, ready_);
  const std::size_t num_waiting = ready_.handles.size();
  if (num_waiting > max_decode_lanes_) {
    turn_ %= num_waiting;
    std::ranges::rotate(ready_.handles,
                        ready_.handles.begin() + static_cast<std::ptrdiff_t>(turn_));
    ready_.handles.resize(max_decode_lanes_);
    turn_ += max_decode_lanes_;
  }
  const std::size_t room = max_decode_lanes_ - ready_.handles.size();
  if (engine_->num_in_flight() > 0 && room > 0) {
    const FlyingStep& in_front = step_of(engine_->last_launched());
    const std::size_t num_left_out = in_front.num_decoding - std::min(room, in_front.num_decoding);
    walks_.speculate(kDecodeNode, Names::kNode, in_front.decoding().subspan(num_left_out),
                     table_.num_rows(), {}, continuing_);
    step.speculation = continuing_.id;
    // Whoever continues is alive, and its facts are where the step in front has them from.
    auto infos = in_front.batch.infos().subspan(num_left_out);
    if (continuing_.handles.size() < infos.size()) {
      continuing_infos_.clear();
      for (const std::uint32_t lane : continuing_.lanes) {
        continuing_infos_.push_back(infos[lane]);
      }
      infos = continuing_infos_;
    }
    step.batch.add(continuing_.handles, infos, *decode_row_, Names::kDecodeLoop,
                   continuing_.iterations);
    step.num_continuing = step.batch.size();
  }
  std::ignore = walks_.pop(kDecodeNode, ready_.handles, /*check_ready=*/false);
  infos_.clear();
  for (const RequestHandle handle : ready_.handles) {
    infos_.push_back(&table_.find(handle)->info);
  }
  walks_.update_loop_counters(Names::kDecode, ready_.handles, infos_);
  for (std::size_t index = 0; index < ready_.handles.size(); ++index) {
    add_decode_lane(step.batch, ready_.handles[index], *infos_[index],
                    infos_[index]->loop_counters.count(Names::kDecodeLoop));
  }
  step.num_decoding = step.batch.size();
  // One that a step in flight may yet end would run all turns for nothing.
  step.batch.num_turns = engine_->num_in_flight() == 0 ? config_.steps_per_launch : 1;
}

/// The step's own count of the loop is that of the iteration in which the lane will run.
void Worker::add_decode_lane(ExecutingBatch& batch, RequestHandle handle, const RequestInfo& info,
                             std::int32_t iteration) const {
  batch.add(handle, info, *decode_row_).set(Names::kDecodeLoop, iteration);
}

void Worker::add_prompt_lanes(FlyingStep& step) {
  walks_.ready_nodes(&offloaded_, kPrefillNode, std::nullopt, ready_);
  if (ready_.handles.empty()) {
    return;
  }
  for (const Scheduler::Share& share :
       scheduler_.share_prompts(ready_.handles, static_cast<std::int32_t>(step.num_decoding))) {
    const RequestHandle handle = share.request->handle();
    std::ignore = walks_.pop(kPrefillNode, {&handle, 1}, /*check_ready=*/false);
    add_prompt_lane(step, share);
  }
  if (step.batch.size() > step.num_decoding) {
    prepare_step(step);
  }
}

void Worker::add_prompt_lane(FlyingStep& step, const Scheduler::Share& share) {
  RequestState& request = *share.request;
  if (request.whole_row == nullptr) {
    request.settle_tokens();
    request.prefill_signals.assign(
        Names::kTextInputs, {Tensor::copy_of(std::span<const std::int32_t>(request.tokens))});
  }
  const bool ends_prompt = request.num_computed + share.num_tokens == request.num_tokens();
  InputMetadata metadata;
  metadata.loop_counters.set(Names::kDecodeLoop, table_.num_launched_tokens(request));
  step.batch.add(request.handle(), request.info, std::move(metadata),
                 LaneSource{.walk = Names::kPrefill,
                            .signals = &request.prefill_signals,
                            .whole_row = &request.whole_row,
                            .start = request.num_computed,
                            .end = request.num_computed + share.num_tokens});
  step.prompts.push_back(
      {.handle = request.handle(),
       .num_tokens = share.num_tokens,
       .samples = ends_prompt && request.info.max_tokens > 0,
       .ends_prompt = ends_prompt,
       .scoring = request.info.num_generated == 0 ? request.info.scoring : std::nullopt});
}

void Worker::prepare_step(FlyingStep& step) {
  engine_->prepare_inputs(step.batch);
  finish_failed();
  // Prompts that failed left the batch, which kept its order.
  const std::span<const RequestHandle> handles = step.batch.handles().subspan(step.num_decoding);
  std::size_t kept = 0;
  std::erase_if(step.prompts, [&](const PromptLane& lane) {
    const bool stays = kept < handles.size() && handles[kept] == lane.handle;
    kept += stays ? 1 : 0;
    return !stays;
  });
  step.batch.walk = step.batch.size() > step.num_decoding ? Names::kMixed : Names::kDecode;
}

void Worker::abandon_speculation(FlyingStep& step) {
  if (step.speculation) {
    walks_.abandon(*step.speculation, {}, refused_);
    step.speculation.reset();
    metrics_.speculative(SpeculativeRow::kDropped)
        .add(static_cast<std::int64_t>(step.num_continuing));
  }
}

/// The step is not launched: its requests are where they were.
void Worker::put_back(FlyingStep& step) {
  abandon_speculation(step);
  const std::span<const RequestHandle> popped = step.batch.handles().subspan(step.num_continuing);
  const std::size_t num_decoding = step.num_decoding - step.num_continuing;
  walks_.push_back(kDecodeNode, popped.first(num_decoding));
  walks_.push_back(kPrefillNode, popped.subspan(num_decoding));
}

void Worker::after_launch(FlyingStep& step) {
  metrics_.graphs.front().count();
  if (const auto speculation = std::exchange(step.speculation, std::nullopt)) {
    walks_.commit(*speculation, {}, {}, refused_);
    metrics_.speculative(SpeculativeRow::kContinuing)
        .add(static_cast<std::int64_t>(step.num_continuing));
    metrics_.speculative(SpeculativeRow::kFresh)
        .add(static_cast<std::int64_t>(step.batch.size() - step.num_continuing));
  }
  step.num_released = table_.num_released();
  for (const RequestHandle handle : step.decoding()) {
    ++table_.num_pending(handle);
  }
  for (const PromptLane& lane : step.prompts) {
    RequestState& request = *table_.find(lane.handle);
    request.num_computed += lane.num_tokens;
    table_.num_pending(lane.handle) += lane.samples ? 1 : 0;
    if (!lane.ends_prompt) {
      walks_.push_back(kPrefillNode, {&lane.handle, 1});
      continue;
    }
    step.prompt_ends.push_back(lane.handle);
    request.whole_row.reset();
    request.prefill_signals.clear();
    if (table_.num_launched_tokens(request) < request.max_generated()) {
      begin_decode(request);
    }
  }
}

/// The signal alone: a prompt's tokens stand in the request, and a decode lane's token is on the device.
void Worker::signal_text_inputs(RequestHandle handle) {
  WalkInput input{handle, Names::kNode, Names::kTextInputs, {}};
  walks_.ingest({&input, 1}, /*can_buffer=*/false, /*is_streaming=*/false, refused_);
}

/// The prompt's last part is launched; the loop goes on behind it, without waiting for its token.
void Worker::begin_decode(RequestState& request) {
  const RequestHandle handle = request.handle();
  request.info.walk = Names::kDecode;
  walks_.set_walk(handle, Names::kDecode);
  walks_.set_loop(handle, Names::kDecode, Names::kDecodeLoop, request.max_generated(),
                  table_.num_launched_tokens(request));
  signal_text_inputs(handle);
}

}  // namespace rigel
