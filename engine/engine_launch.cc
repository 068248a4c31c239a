// From a prepared batch to a launched step: lease, declare, admit, plan, preprocess, forward, commit, collect.

#include "engine/engine.h"
#include "tensor/error.h"
#include "tensor/trace.h"

#include <limits>
#include <numeric>

namespace rigel {

namespace {

std::int64_t num_tokens_of(const BatchColumns& batch) {
  std::int64_t num_tokens = 0;
  for (const NodeInputs* row : batch.inputs) {
    num_tokens += row->input_seq_len;
  }
  return num_tokens;
}

BatchColumns lane_of(const BatchColumns& batch, std::size_t lane) {
  return {batch.walk,
          batch.handles.subspan(lane, 1),
          batch.infos.subspan(lane, 1),
          batch.metadata.subspan(lane, 1),
          batch.inputs.subspan(lane, 1),
          nullptr};
}

}  // namespace

AdmitOutcome Engine::launch(const ExecutingBatch& batch) {
  RIGEL_CHECK(steps_.can_launch(), "{} steps are in flight already", num_in_flight());
  const TraceRange range(device_, "engine.launch");
  enter(StepPhase::kDeclare);
  check_batch(batch);
  Slot& slot = slot_of(last_launched() + 1);
  slot.staging.reset();
  slot.outputs.reset();

  const BatchColumns lanes = batch.columns();
  const bool batches = batch.size() == 1 || submodule_->can_batch(lanes);
  lease_ = lease_slot(lanes);
  std::size_t num_drives = 1;
  if (batches || lease_) {
    begin_drive(0, lanes);
  } else {
    num_drives = batch.size();
    for (std::size_t lane = 0; lane < num_drives; ++lane) {
      begin_drive(lane, lane_of(lanes, lane));
    }
  }
  try {
    const AdmitOutcome outcome = launch_drives({drives_.data(), num_drives}, lanes, slot);
    release_lease();
    return outcome;
  } catch (...) {
    release_lease();
    throw;
  }
}

void Engine::check_batch(const ExecutingBatch& batch) const {
  RIGEL_CHECK(!batch.empty(), "a step of walk {} has no lanes", static_cast<int>(batch.walk));
  const auto most = static_cast<std::size_t>(
      max_batch_size(batch.walk).value_or(std::numeric_limits<std::int32_t>::max()));
  RIGEL_CHECK(batch.size() <= most, "a step of {} lanes, its submodule takes {}", batch.size(),
              most);
  for (const NodeInputs* row : batch.inputs()) {
    RIGEL_CHECK(row != nullptr, "a lane of walk {} was not prepared", static_cast<int>(batch.walk));
  }
}

std::optional<SlotLease> Engine::lease_slot(const BatchColumns& batch) {
  if (captured_ == nullptr || !graph_catalog_->replays(batch.walk)) {
    return std::nullopt;
  }
  if (!submodule_->can_use_cuda_graphs(batch)) {
    misses_.add(batch.walk, GraphMissReason::kDeclined);
    return std::nullopt;
  }
  const CgKey key = submodule_->cg_key_info(batch);
  if (!key.has_bucket()) {
    misses_.add(batch.walk, GraphMissReason::kNoBucket);
    return std::nullopt;
  }
  std::optional<SlotLease> lease = captured_->lease(
      {batch.walk, static_cast<std::int32_t>(batch.handles.size()), num_tokens_of(batch), key});
  if (!lease) {
    misses_.add(batch.walk, GraphMissReason::kNotCaptured);
  }
  return lease;
}

void Engine::release_lease() noexcept {
  if (lease_) {
    captured_->release(*lease_);
    lease_.reset();
  }
}

void Engine::begin_drive(std::size_t index, const BatchColumns& lanes) {
  while (drives_.size() <= index) {
    drives_.emplace_back(stream_);
  }
  Drive& drive = drives_[index];
  drive.lanes = lanes;
  drive.context.epoch = last_launched() + 1;
}

/// Lets the submodule declare the drive: over the lanes of the leased capture first, and without a lease where it then
/// declares what the capture was not made for.
void Engine::declare(Drive& drive) {
  drive.context.reset();
  drive.step.reset();
  drive.context.batch = drive.lanes;
  drive.context.staging = &slot_of(drive.context.epoch).staging;
  drive.context.slot = 0;
  if (lease_) {
    if (StepStaging* const staging = captured_->staging(*lease_)) {
      drive.context.staging = staging;
    }
    drive.context.slot = lease_->slot;
    drive.context.batch =
        padded_.pad(drive.lanes, lease_->bucket.num_lanes, captured_->padding_row(*lease_));
    drive.context.batch.slot_lease = &*lease_;
  }
  drive.context.num_tokens = num_tokens_of(drive.context.batch);
  drive.declares = submodule_->declare_step(drive.context.batch, drive.step);
  if (!lease_ || !drive.declares) {
    return;
  }
  const bool has_key = drive.step.cg_key_info == lease_->bucket.key;
  if (!has_key || !runner_.fits_capture(drive.step, drive.context)) {
    misses_.add(drive.lanes.walk,
                has_key ? GraphMissReason::kOverflow : GraphMissReason::kKeyMismatch);
    release_lease();
    declare(drive);
  }
}

AdmitOutcome Engine::launch_drives(std::span<Drive> drives, const BatchColumns& lanes, Slot& slot) {
  // Everything is admitted before anything runs, so that a refusal costs nothing and nothing runs twice.
  for (Drive& drive : drives) {
    enter(StepPhase::kDeclare);
    declare(drive);
    if (drive.declares) {
      enter(StepPhase::kAdmit);
      if (const AdmitOutcome outcome = runner_.admit(drive.step, drive.context); !outcome.ok()) {
        return outcome;
      }
    }
  }
  run_drives(drives, lanes, slot);
  return {};
}

void Engine::run_drives(std::span<Drive> drives, const BatchColumns& lanes, Slot& slot) {
  const Epoch epoch = last_launched() + 1;
  host_rows_.begin(epoch, static_cast<std::int64_t>(drives.size()));
  try {
    for (Drive& drive : drives) {
      launch_drive(drive, lanes, slot);
      if (drives.size() == 1) {
        enqueue_forward(drive, slot.outputs);
      } else {
        lane_outputs_.reset();
        enqueue_forward(drive, lane_outputs_);
        slot.outputs.update(lane_outputs_);
      }
    }
  } catch (...) {
    if (last_launched() == epoch) {
      host_rows_.begin(epoch, 0);
      slot.completed.record(stream_);
    }
    throw;
  }
  slot.completed.record(stream_);
}

void Engine::launch_drive(Drive& drive, const BatchColumns& lanes, Slot& slot) {
  if (drive.declares) {
    enter(StepPhase::kPlan);
    runner_.plan(drive.step, drive.context);
  }
  enter(StepPhase::kSplice);
  submodule_->preprocess(drive.context.batch, drive.context);
  if (drive.context.staging == &slot.staging) {
    slot.staging.upload(stream_);
  }
  // From here on the device may touch what the step uses, whatever happens to the rest of the launch.
  if (last_launched() < drive.context.epoch) {
    steps_.launch(lanes.handles);
  }
}

void Engine::enqueue_forward(Drive& drive, BatchedModelOutput& outputs) {
  const BatchColumns& batch = drive.context.batch;
  const ModelInputsFromEngine inputs{
      .handles = batch.handles,
      .infos = batch.infos,
      .metadata = batch.metadata,
      .inputs = batch.inputs,
      .step = drive.declares ? &drive.step : nullptr,
      .context = &drive.context,
      .states = LazyRequestStates(submodule_->request_states(), batch.handles),
      .captured = batch.slot_lease != nullptr};
  enter(StepPhase::kForward);
  if (lease_) {
    captured_->replay(*lease_, inputs, outputs);
  } else {
    submodule_->forward(inputs, outputs);
  }
  if (drive.declares) {
    enter(StepPhase::kSettle);
    runner_.commit(drive.step, drive.context);
  }
  enter(StepPhase::kLaunch);
  host_rows_.stage(stream_, outputs);
  collector_.collect(*submodule_, drive.lanes, outputs, failures_);
}

}  // namespace rigel
