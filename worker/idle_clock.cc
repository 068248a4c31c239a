#include "worker/idle_clock.h"

namespace rigel {

IdleClock::IdleClock(Device& device)
    : measures_(device.is_cuda() || device.options().mode == DeviceMode::kThreaded) {
  for (auto& step : steps_) {
    step = std::make_unique<Step>(device);
  }
}

void IdleClock::before_launch(StreamRef stream, Epoch epoch) {
  if (!measures_) {
    return;
  }
  Step& step = step_of(epoch);
  step.continues = continues_;
  step.starved = continues_ && step_of(epoch - 1).ended.ref().query();
  if (step.starved) {
    step.began.record(stream);
  }
}

void IdleClock::after_launch(StreamRef stream, Epoch epoch) {
  if (measures_) {
    step_of(epoch).ended.record(stream);
    continues_ = true;
  }
}

std::optional<double> IdleClock::idle_before(Epoch epoch) const {
  const Step& step = step_of(epoch);
  if (!measures_ || !step.continues) {
    return std::nullopt;
  }
  return step.starved ? step.began.elapsed_us_since(step_of(epoch - 1).ended) * 1e-6 : 0.0;
}

}  // namespace rigel
