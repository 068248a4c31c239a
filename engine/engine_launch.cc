// From a prepared batch to a launched step: admit, plan, preprocess, forward, commit, collect. engine_declare.cc leases and
// declares.

#include "engine/engine.h"
#include "engine/piecewise_runners.h"
#include "tensor/error.h"
#include "tensor/trace.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace rigel {

namespace {

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
  RIGEL_CHECK(launched_turns_ == 1, "a step of {} turns is in flight: the next one waits for it",
              launched_turns_);
  const TraceRange range(device_, "engine.launch");
  enter(StepPhase::kDeclare);
  check_batch(batch);
  Slot& slot = slot_of(last_launched() + 1);
  slot.outputs.reset();
  slot.tensor_inputs.clear();

  const BatchColumns lanes = batch.columns();
  const bool batches = batch.size() == 1 || submodule_->can_batch(lanes);
  if (!is_planned_ahead(lanes)) {
    drop_preplan();
    slot.staging.reset();
    lease_ = lease_slot(lanes);
  }
  std::size_t num_drives = 1;
  if (batches || lease_) {
    begin_drive(0, lanes);
  } else {
    num_drives = batch.size();
    for (std::size_t lane = 0; lane < num_drives; ++lane) {
      begin_drive(lane, lane_of(lanes, lane));
    }
  }
  slot.drives.front().wanted_turns = lease_ ? std::min(batch.num_turns, lease_->max_turns) : 1;
  try {
    const AdmitOutcome outcome = launch_drives({slot.drives.data(), num_drives}, lanes, slot);
    drop_preplan();  // of a step that was refused
    release_lease();
    return outcome;
  } catch (...) {
    drop_preplan();
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

void Engine::begin_drive(std::size_t index, const BatchColumns& lanes) {
  const Epoch epoch = last_launched() + 1;
  std::vector<Drive>& drives = slot_of(epoch).drives;
  while (drives.size() <= index) {
    drives.emplace_back(stream_);
  }
  Drive& drive = drives[index];
  drive.lanes = lanes;
  drive.context.epoch = epoch;
  drive.context.max_turns = results_.max_turns();
  drive.wanted_turns = 1;
}

AdmitOutcome Engine::launch_drives(std::span<Drive> drives, const BatchColumns& lanes, Slot& slot) {
  // Everything is admitted before anything runs, so that a refusal costs nothing and nothing runs twice.
  for (Drive& drive : drives) {
    if (const AdmitOutcome outcome = declare_and_admit(drive); !outcome.ok()) {
      return outcome;
    }
    admit_turns(drive);
  }
  run_drives(drives, lanes, slot);
  return {};
}

/// A step that was planned ahead has one turn, and so has one that runs eagerly after all.
void Engine::admit_turns(Drive& drive) {
  if (drive.declares && drive.wanted_turns > 1 && lease_ && !planned_ahead_) {
    drive.context.set_num_turns(runner_.admit_turns(drive.step, drive.context, drive.wanted_turns));
  }
}

void Engine::run_drives(std::span<Drive> drives, const BatchColumns& lanes, Slot& slot) {
  const Epoch epoch = last_launched() + 1;
  results_.begin(epoch, static_cast<std::int64_t>(drives.size()));
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
      launched_turns_ = 1;
      results_.begin(epoch, 0);
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
    if (std::exchange(planned_ahead_, false)) {
      ++preplan_counts_.promoted;
    }
  }
  enter(StepPhase::kSplice);
  submodule_->preprocess(drive.context.batch, drive.context);
  drive.context.stage_splices();
  if (drive.context.staging == &slot.staging) {
    slot.staging.upload(stream_);
    drive.context.enqueue_splices();
  }
  // From here on the device may touch what the step uses, whatever happens to the rest of the launch.
  if (last_launched() < drive.context.epoch) {
    steps_.launch(lanes.handles);
    launched_turns_ = drive.context.num_turns;
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
      .resources = &resources_,
      .piecewise_runners = lease_ || captures_ == nullptr ? nullptr : &captures_->regions(),
      .states = LazyRequestStates(submodule_->request_states(), batch.handles),
      .captured = batch.slot_lease != nullptr};
  enter(StepPhase::kForward);
  if (lease_) {
    captured_->replay(*lease_, inputs, outputs);
  } else if (batch.handles.size() == 1) {
    submodule_->forward(inputs, outputs);
  } else {
    submodule_->forward_batched(inputs, outputs);
  }
  if (drive.declares) {
    enter(StepPhase::kSettle);
    runner_.commit(drive.step, drive.context);
  }
  enter(StepPhase::kLaunch);
  results_.stage(stream_, outputs, drive.context.step_number);
  collector_.collect(*submodule_, drive.lanes, outputs, failures_);
  row_tensors_.give(stream_, drive.lanes.walk, outputs);
}

}  // namespace rigel
