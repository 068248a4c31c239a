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
    return composite_->launch_step();
  } catch (const DeviceError& error) {
    fail_everything(error.what());
    return false;
  }
}

void Worker::complete_composite_step() {
  clock_.enter(StepPhase::kRoute);
  try {
    composite_->complete_step();
  } catch (const DeviceError& error) {
    fail_everything(error.what());
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
