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

/// Lets the submodule declare the drive, over the lanes of the leased capture where there is one. Returns why that cannot
/// serve what it declares.
std::optional<GraphMissReason> Engine::declare_leased(Drive& drive) {
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
    return std::nullopt;
  }
  pad_segments(drive.context.batch, drive.step);
  if (drive.step.cg_key_info != lease_->bucket.key) {
    return GraphMissReason::kKeyMismatch;
  }
  return runner_.fits_capture(drive.step, drive.context)
             ? std::nullopt
             : std::optional(GraphMissReason::kOverflow);
}

/// The same, again and without a lease where the first does not serve.
void Engine::declare(Drive& drive) {
  if (const std::optional<GraphMissReason> miss = declare_leased(drive)) {
    misses_.add(drive.lanes.walk, *miss);
    drop_preplan();
    release_lease();
    slot_of(drive.context.epoch).staging.reset();
    std::ignore = declare_leased(drive);
  }
}

}  // namespace rigel
