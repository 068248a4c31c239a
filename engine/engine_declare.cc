// Which captured step serves a batch, and what the submodule declares for it.

#include "engine/engine.h"
#include "engine/piecewise_runners.h"

#include <tuple>

namespace rigel {

Engine::BucketChoice Engine::choose_bucket(const BatchColumns& batch) const {
  if (captured_ == nullptr || !graph_catalog_->replays(batch.walk)) {
    return {};
  }
  if (!submodule_->can_use_cuda_graphs(batch)) {
    return {.query = {}, .miss = GraphMissReason::kDeclined};
  }
  const CgKey key = submodule_->cg_key_info(batch);
  if (!key.has_bucket()) {
    return {.query = {}, .miss = GraphMissReason::kNoBucket};
  }
  return {.query = BucketQuery{batch.walk, static_cast<std::int32_t>(batch.handles.size()),
                               num_step_tokens(batch), key},
          .miss = {}};
}

std::optional<SlotLease> Engine::lease_slot(const BatchColumns& batch) {
  BucketChoice choice = choose_bucket(batch);
  std::optional<SlotLease> lease;
  if (choice.query) {
    lease = captured_->lease(*choice.query);
    if (!lease) {
      choice.miss = GraphMissReason::kNotCaptured;
    }
  }
  if (choice.miss) {
    misses_.add(batch.walk, *choice.miss);
  }
  return lease;
}

void Engine::release_lease() noexcept {
  if (lease_) {
    captured_->release(*lease_);
    lease_.reset();
  }
}

/// Where the drive's columns go: into the staging of the leased slot, or the step's own.
void Engine::begin_columns(Drive& drive) {
  StepStaging* staging = lease_ ? captured_->staging(*lease_) : nullptr;
  TensorInputs* tensors = lease_ ? captured_->tensor_inputs(*lease_) : nullptr;
  Slot& slot = slot_of(drive.context.epoch);
  drive.context.slot = lease_ ? lease_->slot : 0;
  drive.context.tensor_inputs = tensors != nullptr ? tensors : &slot.tensor_inputs;
  drive.context.begin_columns(staging != nullptr ? *staging : slot.staging);
}

/// Lets the submodule declare the drive, over the lanes of the leased capture where there is one. False: it declares what that
/// was not captured for.
bool Engine::declare_leased(Drive& drive) {
  if (!planned_ahead_) {
    begin_columns(drive);
  }
  drive.context.reset();
  drive.step.reset();
  drive.context.batch = drive.lanes;
  if (lease_) {
    drive.context.batch =
        padded_.pad(drive.lanes, lease_->bucket.num_lanes, captured_->padding_row(*lease_));
    drive.context.batch.slot_lease = &*lease_;
  } else if (captures_ != nullptr) {
    drive.context.batch.region_leases = captures_->regions().lease(
        static_cast<std::int32_t>(drive.lanes.handles.size()), num_step_tokens(drive.lanes));
  }
  drive.context.num_tokens = num_step_tokens(drive.context.batch);
  drive.declares = submodule_->declare_step(drive.context.batch, drive.step);
  if (!lease_ || !drive.declares) {
    return true;
  }
  pad_segments(drive.context.batch, drive.step);
  return drive.step.cg_key_info == lease_->bucket.key;
}

/// The same, again and without a lease where that does not serve.
void Engine::declare(Drive& drive) {
  if (!declare_leased(drive)) {
    declare_eagerly(drive, GraphMissReason::kKeyMismatch);
  }
}

void Engine::declare_eagerly(Drive& drive, GraphMissReason miss) {
  misses_.add(drive.lanes.walk, miss);
  drop_preplan();
  release_lease();
  slot_of(drive.context.epoch).staging.reset();
  std::ignore = declare_leased(drive);
}

/// Declared and admitted; eagerly where the leased capture has no room for what varies in size.
AdmitOutcome Engine::declare_and_admit(Drive& drive) {
  enter(StepPhase::kDeclare);
  declare(drive);
  if (planned_ahead_ && !(drive.declares && runner_.keep_staged(drive.step, drive.context))) {
    drop_staged(drive);
  }
  if (!drive.declares) {
    return {};
  }
  enter(StepPhase::kAdmit);
  AdmitOutcome outcome = runner_.admit(drive.step, drive.context);
  if (outcome.ok() && lease_ && !runner_.fits_capture(drive.step, drive.context)) {
    runner_.abandon(drive.step);
    declare_eagerly(drive, GraphMissReason::kOverflow);
    outcome = runner_.admit(drive.step, drive.context);
  }
  return outcome;
}

}  // namespace rigel
