// The step that is staged one ahead of its turn.

#include "engine/step_runner.h"
#include "tensor/error.h"

#include <algorithm>

namespace rigel {

bool StepRunner::can_preplan() const {
  return std::ranges::any_of(order_,
                             [](const Resource* resource) { return resource->supports_preplan(); });
}

AdmitOutcome StepRunner::pre_admit(const SubmoduleStep& step, const StepContext& context) {
  check_keys(step);
  clear_preplan();
  stage_ = Stage::kBegun;
  for (Resource* resource : order_) {
    if (step.find(resource->key()) == nullptr || !resource->supports_preplan()) {
      continue;
    }
    resource->begin_preplan();
    if (AdmitOutcome outcome = resource->admit(step, context); !outcome.ok()) {
      outcome.resource = resource->key();
      clear_preplan();
      return outcome;
    }
  }
  return {};
}

void StepRunner::pre_plan(const SubmoduleStep& step, StepContext& context) {
  RIGEL_CHECK(stage_ == Stage::kBegun, "a step is admitted ahead before it is planned ahead");
  for (std::size_t index = 0; index < order_.size(); ++index) {
    Resource& resource = *order_[index];
    if (step.find(resource.key()) != nullptr && resource.supports_preplan()) {
      resource.plan(step, context);
      staged_plans_[index] = context.plan_output(resource.key());
    }
  }
  staged_walk_ = context.batch.walk;
  staged_handles_.assign(context.batch.handles.begin(), context.batch.handles.end());
  staged_slot_ = context.slot;
  staged_step_ = step;
  stage_ = Stage::kPlanned;
}

bool StepRunner::is_staged_step(const SubmoduleStep& step, const StepContext& context) const {
  if (stage_ != Stage::kPlanned || context.batch.walk != staged_walk_ ||
      context.slot != staged_slot_ || step.cg_key_info != staged_step_.cg_key_info ||
      !std::ranges::equal(context.batch.handles, staged_handles_) ||
      step.segments != staged_step_.segments) {
    return false;
  }
  return std::ranges::all_of(order_, [&](const Resource* resource) {
    if (!resource->supports_preplan()) {
      return true;
    }
    const ResourceStep* const now = step.find(resource->key());
    const ResourceStep* const then = staged_step_.find(resource->key());
    return (now == nullptr) == (then == nullptr) && (now == nullptr || *now == *then);
  });
}

bool StepRunner::keep_staged(const SubmoduleStep& step, const StepContext& context) {
  if (stage_ == Stage::kNone) {
    return false;
  }
  if (is_staged_step(step, context)) {
    return true;
  }
  clear_preplan();
  return false;
}

/// First of all: whatever the rest of the step's planning may throw, nothing is staged any more.
void StepRunner::promote(StepContext& context) {
  stage_ = Stage::kNone;
  for (std::size_t index = 0; index < order_.size(); ++index) {
    Resource& resource = *order_[index];
    if (staged_step_.find(resource.key()) != nullptr && resource.supports_preplan()) {
      resource.promote(context.epoch);
      context.set_plan(resource.key(), staged_plans_[index]);
    }
  }
}

/// In reverse: what a resource gives back may be what another one's plan was made from.
void StepRunner::clear_preplan() {
  if (stage_ == Stage::kNone) {
    return;
  }
  stage_ = Stage::kNone;
  for (auto resource = order_.rbegin(); resource != order_.rend(); ++resource) {
    (*resource)->clear_preplan();
  }
}

void StepRunner::clear_preplan_of(RequestHandle handle) {
  if (stage_ == Stage::kPlanned &&
      std::ranges::find(staged_handles_, handle) != staged_handles_.end()) {
    clear_preplan();
  }
}

}  // namespace rigel
