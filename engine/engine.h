#pragma once

#include "engine/contract/submodule.h"
#include "engine/executing_batch.h"
#include "engine/host_row_ring.h"
#include "engine/lifetime.h"
#include "engine/output_collector.h"
#include "engine/resource.h"
#include "engine/step_clock.h"
#include "engine/step_context.h"
#include "engine/step_runner.h"
#include "tensor/device.h"
#include "tensor/event.h"
#include "tensor/stream.h"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace rigel {

struct EngineConfig {
  std::int64_t staging_bytes = 0;  // of one step's columns
};

/// Runs the steps of a node: declare, admit, plan, launch, commit, collect, and later the completion. It decides nothing
/// about requests; the worker does. Thread: worker.
///
/// A step that was launched is known by its epoch. Steps complete in order; at most kMaxInFlight are in flight.
class Engine {
 public:
  static constexpr std::uint64_t kMaxInFlight = 2;

  Engine(Device& device, std::unique_ptr<NodeSubmodule> submodule, NodeResources resources,
         const EngineConfig& config);
  ~Engine();

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Opens a request's state in every resource of the node and in its submodule.
  void add_request(const RequestInfo& info);
  /// Drops a request's state; what the device may still touch is kept until the request's last step has completed.
  void remove_request(RequestHandle handle);
  /// The request loses what it has cached and stays open: its tokens will be computed again from the first.
  void restart_request(RequestHandle handle);

  /// Enqueues the whole step behind what was launched before. Lanes that the submodule cannot batch are steps of their own:
  /// launching them together throws CheckError, as does a step above its max_batch_size. A refusal launches nothing. Throws what the submodule throws:
  /// the batch has failed; DeviceError: the device has. At most kMaxInFlight steps may be in flight.
  [[nodiscard]] AdmitOutcome launch(const ExecutingBatch& batch);

  /// Waits for the oldest step in flight and gives its rows; memory that waited for it is free again.
  [[nodiscard]] HostRows complete();

  /// What the last launched step gave by request; its work may still be enqueued. Valid until the next launch.
  [[nodiscard]] const RequestOutputs& request_outputs() const { return outputs_.requests(); }
  /// Requests of the last launched step whose postprocess failed; they have no outputs.
  [[nodiscard]] std::span<const OutputCollector::Failure> failed_requests() const {
    return collector_.failures();
  }

  [[nodiscard]] Epoch last_launched() const { return steps_.last_launched(); }
  [[nodiscard]] Epoch last_completed() const { return steps_.last_completed(); }
  [[nodiscard]] std::uint64_t num_in_flight() const { return steps_.num_in_flight(); }
  /// The last launched step with a lane of this request: who reuses its row or its memory waits until that has completed.
  /// Requires that the request was added.
  [[nodiscard]] Epoch last_touch(RequestHandle handle) const {
    return steps_.last_touch(handle.row);
  }

  /// Told from now on which phase of a step begins; null: nobody is. It outlives its use.
  void set_clock(StepClock* clock) { clock_ = clock; }

  [[nodiscard]] NodeSubmodule& submodule() { return *submodule_; }
  [[nodiscard]] NodeResources& resources() { return resources_; }
  [[nodiscard]] StreamRef stream() const { return stream_.ref(); }

 private:
  struct Slot {
    Slot(Device& device, std::int64_t staging_bytes);
    StepStaging staging;
    Event completed;
  };

  [[nodiscard]] Slot& slot_of(Epoch epoch) { return *slots_[steps_.slot_of(epoch)]; }
  void prepare_context(const ExecutingBatch& batch, Slot& slot);
  void check_batch() const;
  void enter(StepPhase phase) {
    if (clock_ != nullptr) {
      clock_->enter(phase);
    }
  }
  void run_forward(bool declared);

  Device& device_;
  Stream stream_;
  NodeResources resources_;
  std::unique_ptr<NodeSubmodule> submodule_;
  StepRunner runner_;
  std::array<std::unique_ptr<Slot>, kMaxInFlight> slots_;
  HostRowRing host_rows_;
  SubmoduleStep step_;
  StepContext context_;
  BatchedModelOutput outputs_;
  OutputCollector collector_;
  StepClock* clock_ = nullptr;
  lifetime::Steps<> steps_{kMaxInFlight};
};

}  // namespace rigel
