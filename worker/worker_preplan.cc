// One step at a time: what the next one needs of the host is done while the device has this one.

#include "tensor/error.h"
#include "worker/worker.h"

#include <algorithm>
#include <tuple>

namespace rigel {

/// A worker that runs one step ahead plans while the device works anyway. Else the device would wait between two steps for
/// the plan of the second, which nobody knows for sure before the first has completed: most likely everybody goes on.
void Worker::preplan_step() {
  if (composite_ != nullptr || !engine_->can_preplan() ||
      scheduler_.running().size() > max_decode_lanes_) {
    return;
  }
  walks_.ready_nodes(&offloaded_, kPrefillNode, std::nullopt, ready_);
  if (!ready_.handles.empty()) {
    return;  // a step with prompts
  }
  const FlyingStep& step = step_of(engine_->last_launched());
  const std::span<const RequestHandle> handles = step.batch.handles();
  ready_.handles.clear();
  for (std::size_t lane = 0; lane < handles.size(); ++lane) {
    const RequestState* const request = table_.find(handles[lane]);
    if (step.samples(lane) && request != nullptr &&
        table_.num_launched_tokens(*request) < request->max_generated()) {
      ready_.handles.push_back(handles[lane]);
    }
  }
  std::ranges::sort(ready_.handles, {}, &RequestHandle::row);
  expected_.clear();
  expected_.walk = Names::kDecode;
  for (const RequestHandle handle : ready_.handles) {
    const RequestState& request = *table_.find(handle);
    add_decode_lane(expected_, handle, request.info, table_.num_launched_tokens(request));
  }
  if (expected_.empty()) {
    return;
  }
  try {
    std::ignore = engine_->preplan(expected_);
  } catch (const DeviceError& error) {
    fail_everything(error.what());
  } catch (const std::exception& error) {
    for (const RequestHandle handle : expected_.handles()) {
      finish(*table_.find(handle), FinishReason::kError, error.what());
    }
  }
}

}  // namespace rigel
