// The step that is expected next, planned while the device runs the one before it.

#include "engine/engine.h"
#include "tensor/error.h"
#include "tensor/trace.h"

#include <algorithm>

namespace rigel {

bool Engine::preplan(const ExecutingBatch& batch) {
  if (!can_preplan() || !steps_.can_launch() || launched_turns_ > 1) {
    return false;
  }
  const TraceRange range(device_, "engine.preplan");
  enter(StepPhase::kDeclare);
  check_batch(batch);
  drop_preplan();
  const BatchColumns lanes = batch.columns();
  const BucketChoice choice = choose_bucket(lanes);
  lease_ = choice.query ? captured_->lease(*choice.query) : std::nullopt;
  if (!lease_) {
    return false;  // an eager step; its launch says why
  }
  begin_drive(0, lanes);
  Slot& slot = slot_of(last_launched() + 1);
  slot.staging.reset();
  try {
    if (plan_ahead(slot.drives[0])) {
      planned_ahead_ = true;
      ahead_query_ = *choice.query;
      ahead_handles_.assign(lanes.handles.begin(), lanes.handles.end());
      ++preplan_counts_.planned;
      return true;
    }
  } catch (const DeviceError&) {
    give_up_lease();
    throw;
  } catch (const std::exception&) {
    // Whoever is to blame will be when the step is launched.
  }
  give_up_lease();
  return false;
}

/// False: it is refused, or not for a captured step.
bool Engine::plan_ahead(Drive& drive) {
  if (!declare_leased(drive) || !drive.declares) {
    return false;
  }
  enter(StepPhase::kAdmit);
  if (!runner_.pre_admit(drive.step, drive.context).ok()) {
    ++preplan_counts_.refused;
    return false;
  }
  if (!runner_.fits_capture(drive.step, drive.context)) {
    return false;
  }
  enter(StepPhase::kPlan);
  runner_.pre_plan(drive.step, drive.context);
  return true;
}

/// Whether the lease and what is staged in its slot are for these lanes.
bool Engine::is_planned_ahead(const BatchColumns& lanes) const {
  return planned_ahead_ && runner_.is_staged() &&
         std::ranges::equal(lanes.handles, ahead_handles_) &&
         choose_bucket(lanes).query == ahead_query_;
}

void Engine::drop_preplan() {
  if (planned_ahead_) {
    ++preplan_counts_.dropped;
    planned_ahead_ = false;
    give_up_lease();
  }
}

/// The step declares something else than it did ahead: it keeps its lease and is planned anew.
void Engine::drop_staged(Drive& drive) {
  ++preplan_counts_.dropped;
  planned_ahead_ = false;
  runner_.clear_preplan();
  slot_of(drive.context.epoch).staging.reset();
  begin_columns(drive);
}

void Engine::drop_preplan_of(RequestHandle handle) {
  if (planned_ahead_ && std::ranges::find(ahead_handles_, handle) != ahead_handles_.end()) {
    drop_preplan();
  }
}

void Engine::give_up_lease() {
  runner_.clear_preplan();
  release_lease();
}

}  // namespace rigel
