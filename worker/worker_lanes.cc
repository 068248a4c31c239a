// The worker's way from a schedule to a launched step.

#include <utility>

#include "model/language_model_names.h"
#include "tensor/error.h"
#include "worker/worker.h"

namespace rigel {

using Phase = RequestState::Phase;
using Names = LanguageModelNames;

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

}  // namespace rigel
