#pragma once

#include "engine/contract/ids.h"
#include "tensor/device.h"
#include "tensor/event.h"
#include "tensor/stream.h"

#include <array>
#include <memory>
#include <optional>

namespace rigel {

/// How long the device waited for its next step: from the end of step N to the beginning of step N + 1, by the device's own
/// clock. Usually N + 1 is queued before N has ended, which costs one event and one query to know; only where N has ended are the
/// two times read. Where the device does not run beside the host (eager, lazy, null) nothing is measured. Thread: worker.
class IdleClock {
 public:
  explicit IdleClock(Device& device);

  /// Before anything of step `epoch` is enqueued on `stream`.
  void before_launch(StreamRef stream, Epoch epoch);
  /// Behind everything of step `epoch`.
  void after_launch(StreamRef stream, Epoch epoch);
  /// There was nothing to run: what the device waits now is nobody's fault.
  void pause() { continues_ = false; }
  /// Seconds that the device waited before step `epoch`, which has completed; none where that says nothing.
  [[nodiscard]] std::optional<double> idle_before(Epoch epoch) const;

 private:
  struct Step {
    explicit Step(Device& device) : began(device), ended(device) {}
    TimedEvent began;  // recorded only where the step before has ended
    TimedEvent ended;
    bool continues = false;  // another step ran directly before
    bool starved = false;    // and it had ended
  };

  [[nodiscard]] Step& step_of(Epoch epoch) { return *steps_[epoch % steps_.size()]; }
  [[nodiscard]] const Step& step_of(Epoch epoch) const { return *steps_[epoch % steps_.size()]; }

  bool measures_;
  bool continues_ = false;
  // Two steps are in flight at most, and the one before them has just been read.
  std::array<std::unique_ptr<Step>, 4> steps_;
};

}  // namespace rigel
