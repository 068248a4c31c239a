// The worker's steps where its model has several nodes.

#include "tensor/error.h"
#include "worker/composite.h"
#include "worker/worker.h"

#include <utility>

namespace rigel {

std::uint64_t Worker::num_in_flight() const {
  return composite_ != nullptr ? composite_->num_in_flight() : engine_->num_in_flight();
}

bool Worker::launch_composite_step() {
  clock_.enter(StepPhase::kBuild);
  try {
    idle_clock_.before_launch(composite_->stream(), composite_->last_launched() + 1);
    if (!composite_->launch_step()) {
      return false;
    }
    idle_clock_.after_launch(composite_->stream(), composite_->last_launched());
    metrics_.graphs[static_cast<std::size_t>(composite_->last_node())].count();
    return true;
  } catch (const DeviceError& error) {
    fail_everything(error.what());
    return false;
  }
}

void Worker::complete_composite_step() {
  clock_.enter(StepPhase::kRoute);
  try {
    composite_->complete_step();
    if (const auto idle = idle_clock_.idle_before(composite_->last_completed())) {
      metrics_.gpu_idle.observe(*idle);
    }
  } catch (const DeviceError& error) {
    fail_everything(error.what());
  }
}

void Worker::update_composite_gauges() {
  const NodeCounts counts = composite_->counts();
  metrics_.num_preemptions.set(counts.num_preemptions);
  metrics_.num_offloads.set(counts.num_offloads);
  metrics_.pages_total.set(counts.pages_total);
  metrics_.pages_in_use.set(counts.pages_in_use);
  metrics_.wasted(WasteReason::kStopToken).set(counts.num_wasted_rows);
  for (std::size_t kind = 0; kind < kNumSpeculativeRows; ++kind) {
    metrics_.speculative_rows[kind].set(counts.speculative_rows[kind]);
  }
}

void Worker::on_value(RequestHandle handle, OutputValue value) {
  OutputDetails& details = dispatcher_.message().details_of(output_of(*table_.find(handle)));
  std::vector<OutputValue>& values = dispatcher_.message().values;
  if (details.num_values++ == 0) {
    details.first_value = static_cast<std::int32_t>(values.size());
  }
  values.push_back(std::move(value));
}

void Worker::on_end(RequestHandle handle) {
  finish(*table_.find(handle), FinishReason::kStop, "");
}

void Worker::on_failure(RequestHandle handle, const std::string& error) {
  finish(*table_.find(handle), FinishReason::kError, error);
}

}  // namespace rigel
