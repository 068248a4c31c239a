#pragma once

#include "engine/capture.h"
#include "engine/captured_steps.h"
#include "engine/contract/submodule.h"
#include "engine/executing_batch.h"
#include "engine/graph_catalog.h"
#include "engine/lifetime.h"
#include "engine/output_collector.h"
#include "engine/padded_batch.h"
#include "engine/preparation.h"
#include "engine/request_failures.h"
#include "engine/resource.h"
#include "engine/result_ring.h"
#include "engine/row_tensors.h"
#include "engine/step_clock.h"
#include "engine/step_context.h"
#include "engine/step_runner.h"
#include "tensor/device.h"
#include "tensor/event.h"
#include "tensor/stream.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace rigel {

struct EngineConfig {
  std::int64_t staging_bytes = 0;  // of one step's columns, over all its lanes
  /// Of one step's row outputs and records that one launch takes to the host; more are copied by themselves.
  std::int64_t result_bytes = 16 * 1024;
  std::optional<StreamRef> stream =
      std::nullopt;  // shared by the engines of a worker, which it outlives; none: its own
  Dtype dtype = Dtype::kBf16;  // of activations, where the submodule has no compute dtype
  bool preplan = true;         // plan a step ahead where somebody says which
  /// Turns that one launch may have (ExecutingBatch::num_turns), as often as captures that repeat allow it.
  std::int32_t max_turns = 1;
};

/// Steps that were planned ahead, and what became of them.
struct PreplanCounts {
  std::uint64_t planned = 0;
  std::uint64_t promoted = 0;  // launched as they were planned
  std::uint64_t dropped = 0;   // another step came, or a request of theirs has changed
  std::uint64_t refused = 0;   // not admitted, so never planned
};

/// Runs the steps of a node: prepare, lease, declare, admit, plan, launch, commit, collect, and later the completion. It
/// decides nothing about requests; the worker does. Thread: worker.
///
/// A step that was launched is known by its epoch. Steps complete in order; at most kMaxInFlight are in flight. Engines of
/// one worker share a stream, so that what one node made is there for the step that another enqueues behind it; epochs and
/// completion stay each engine's own.
///
/// It is the one place where what a hook throws is caught: in prepare_inputs, postprocess and check_stop that fails its
/// request (take_failures), anywhere else the batch (launch throws). A DeviceError concerns everybody and always passes.
class Engine {
 public:
  static constexpr std::uint64_t kMaxInFlight = 2;

  /// Binds the node's resources and asks the submodule what it wants captured. Throws CheckError naming what does not fit: a
  /// resource that is missing, a submodule on another device, a graph config.
  Engine(Device& device, std::unique_ptr<NodeSubmodule> submodule, NodeResources resources,
         const EngineConfig& config);
  /// Waits for what the stream still does.
  ~Engine();

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Prepares the captures that the submodule wants; steps replay what is captured from the next launch on. Call it once.
  StepCaptures& capture_steps(const CaptureOptions& options);
  /// Null before capture_steps.
  [[nodiscard]] StepCaptures* captures() { return captures_.get(); }
  [[nodiscard]] const StepCaptures* captures() const { return captures_.get(); }
  /// Captured steps from elsewhere, used from the next launch on; they outlive the engine's last step. Null: all are eager.
  void set_captured_steps(CapturedSteps* captured) {
    drop_preplan();
    captured_ = captured;
  }

  /// Opens a request's state in every resource of the node and in its submodule.
  void add_request(const RequestInfo& info);
  /// Drops a request's state; what the device may still touch is kept until the request's last step has completed.
  void remove_request(RequestHandle handle);
  /// The request loses what it has cached and stays open: its tokens will be computed again from the first.
  void restart_request(RequestHandle handle);

  /// Whether truncate_request can undo any step of the request.
  [[nodiscard]] bool can_truncate(RequestHandle handle) const {
    return runner_.can_truncate(handle);
  }
  /// The request's lane of `step` ran for nothing, because a loop had ended before it, and the request goes on from what was
  /// accepted: what its resources took in with the step is forgotten. `accepted`: its facts. Throws CheckError unless `step`
  /// is the last one with the request, and in flight or the last to have completed.
  void truncate_request(const RequestInfo& accepted, Epoch step);

  /// Moves what the request has cached to the host, behind what was launched; it takes no part in steps until it is back. False:
  /// no resource could, or it would free nothing, and nothing has changed. Requires that no step with it is in flight.
  [[nodiscard]] bool offload_request(RequestHandle handle);
  /// Moves it back, in front of what is launched next; false: there is no room, and nothing has changed.
  [[nodiscard]] bool reload_request(RequestHandle handle);

  /// Makes the rows of the batch's lanes. Lanes whose request declines the step (batch.skipped()) or fails leave the batch,
  /// in which nobody may be left.
  void prepare_inputs(ExecutingBatch& batch);

  /// Makes the row of a request's whole input before anybody knows how much of it a step has room for; its parts are then cut by
  /// way of LaneSource::whole_row. Null: it declines, or has failed (take_failures).
  [[nodiscard]] std::unique_ptr<NodeInputs> prepare_whole(const PrepareContext& context,
                                                          const RequestView& request) {
    return prepare_whole_row(*submodule_, context, request, failures_);
  }
  /// The same for the tokens that a request has sampled, because its cache was lost. Requires an ArNodeSubmodule.
  [[nodiscard]] std::unique_ptr<NodeInputs> prepare_replay(const RequestView& request,
                                                           const Tensor& tokens) {
    return prepare_replayed_row(dynamic_cast<ArNodeSubmodule&>(*submodule_), request, tokens,
                                failures_);
  }
  /// Row outputs of this walk that leave the node as each request's tensors, too: somebody takes them there. `allocator` outlives
  /// the engine's steps and their tensors.
  void set_row_tensors(WalkId walk, std::vector<SignalId> signals, TensorAllocator& allocator) {
    row_tensors_.set(walk, std::move(signals), allocator);
  }

  /// Enqueues the whole step behind what was launched before. A captured step may have several turns, up to batch.num_turns
  /// and as far as the resources' room goes: the device runs it again until the host must see a lane, and nothing is launched
  /// behind it before it has completed. Lanes that the submodule cannot batch run one after the other
  /// within the step, once all of them were admitted. A refusal launches nothing. Throws what the submodule throws: the batch
  /// has failed; CheckError: the batch is empty or above max_batch_size; DeviceError: the device has failed. At most
  /// kMaxInFlight steps may be in flight.
  [[nodiscard]] AdmitOutcome launch(const ExecutingBatch& batch);

  /// Plans `batch`, the step that is expected next, while the device runs what was launched: leases a slot, declares, admits and
  /// plans into the slot's staging. The next launch takes that over where its lanes are the same, and drops it first where
  /// not; so does whatever ends, restarts or moves one of its requests. The batch may go away meanwhile. False: nothing is
  /// planned ahead (it would run eagerly, is refused, fails, or plans ahead are off); always right, only later. Throws like
  /// launch for a batch that cannot be, and DeviceError.
  bool preplan(const ExecutingBatch& batch);
  /// Whether preplan() may ever plan something here.
  [[nodiscard]] bool can_preplan() const {
    return preplans_ && captured_ != nullptr && runner_.can_preplan();
  }
  [[nodiscard]] const PreplanCounts& preplan_counts() const { return preplan_counts_; }

  /// Waits for the oldest step in flight and gives its rows, of its first turn where it had several; memory that waited for it
  /// is free again. Throws DeviceError where the device has failed and CheckError where an invariant is broken, which is the
  /// batch's failure; the step has ended then, too.
  [[nodiscard]] HostRows complete();
  /// Turns that the step which completed last has had; what it gives by row in each is valid until the next call.
  [[nodiscard]] std::int32_t completed_turns() const { return completed_turns_; }
  [[nodiscard]] HostRows rows_of_turn(std::int32_t turn) {
    return results_.rows(last_completed(), turn);
  }
  /// That the step which was launched last may have.
  [[nodiscard]] std::int32_t launched_turns() const { return launched_turns_; }

  /// The loops that end after a completed step, of those requests that have not failed, in the order of `requests` and inner
  /// loops first. Valid until the next call.
  [[nodiscard]] std::span<const LoopStop> check_stop(std::span<const RequestView> requests,
                                                     const HostRows& rows);

  /// What the last launched step gave by request; its work may still be enqueued. Tensors may be moved out and live on; the
  /// rest is there until its memory serves the step kMaxInFlight later.
  [[nodiscard]] RequestOutputs& request_outputs() {
    return slot_of(last_launched()).outputs.requests();
  }
  /// Moves the failures since the last call to the end of `failures`: each request once. It takes no part in steps until it
  /// is removed.
  void take_failures(std::vector<RequestFailure>& failures) { failures_.take(failures); }

  /// Lanes a step of this walk may have: the submodule's limit, or what its captures hold.
  [[nodiscard]] std::optional<std::int32_t> max_batch_size(WalkId walk) const;
  /// The capture group of a request, for a scheduler that batches each apart; CgKey() where the walk is not batched apart.
  [[nodiscard]] CgKey capture_group(WalkId walk, const RequestInfo& info,
                                    const InputMetadata& metadata) const;
  /// What leaves for the client by value: the request's row of each buffer that inline_client_signals names. `lane`: where the
  /// request was in the step.
  void append_inline_values(WalkId walk, const HostRows& rows, RequestHandle handle,
                            std::size_t lane, std::vector<InlineValue>& values) const;
  /// The type that the node's activations have.
  [[nodiscard]] Dtype compute_dtype() const { return compute_dtype_; }
  [[nodiscard]] const GraphCatalog& graph_catalog() const { return *graph_catalog_; }
  [[nodiscard]] const GraphMisses& graph_misses() const { return misses_; }

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
  [[nodiscard]] StreamRef stream() const { return stream_; }

 private:
  /// One pass of lanes through resources and forward: a whole step, or one lane of those that cannot be batched.
  struct Drive {
    explicit Drive(StreamRef stream) : context(stream) {}
    BatchColumns lanes;  // the real ones
    SubmoduleStep step;
    StepContext context;
    bool declares = false;
    std::int32_t wanted_turns = 1;
  };
  /// What a step in flight holds; it is used again once the step has completed.
  struct Slot {
    Slot(Device& device, std::int64_t staging_bytes);
    StepStaging staging;
    GatheredInputs tensor_inputs;
    Event completed;
    BatchedModelOutput outputs;
    std::vector<Drive> drives;  // those of this epoch are the step's
    std::vector<PerRequestState>
        retired;  // of requests that were removed while the step was in flight
  };

  [[nodiscard]] Slot& slot_of(Epoch epoch) { return *slots_[steps_.slot_of(epoch)]; }
  void enter(StepPhase phase) {
    if (clock_ != nullptr) {
      clock_->enter(phase);
    }
  }
  /// What a batch asks of the captures; neither: its walk has none.
  struct BucketChoice {
    std::optional<BucketQuery> query;
    std::optional<GraphMissReason> miss;
  };

  void check_batch(const ExecutingBatch& batch) const;
  [[nodiscard]] BucketChoice choose_bucket(const BatchColumns& batch) const;
  [[nodiscard]] std::optional<SlotLease> lease_slot(const BatchColumns& batch);
  void begin_drive(std::size_t index, const BatchColumns& lanes);
  void begin_columns(Drive& drive);
  [[nodiscard]] bool declare_leased(Drive& drive);
  void declare(Drive& drive);
  void declare_eagerly(Drive& drive, GraphMissReason miss);
  [[nodiscard]] AdmitOutcome declare_and_admit(Drive& drive);
  void admit_turns(Drive& drive);
  [[nodiscard]] AdmitOutcome launch_drives(std::span<Drive> drives, const BatchColumns& lanes,
                                           Slot& slot);
  void launch_drive(Drive& drive, const BatchColumns& lanes, Slot& slot);
  void enqueue_forward(Drive& drive, BatchedModelOutput& outputs);
  void run_drives(std::span<Drive> drives, const BatchColumns& lanes, Slot& slot);
  void release_lease() noexcept;
  [[nodiscard]] bool plan_ahead(Drive& drive);
  [[nodiscard]] bool is_planned_ahead(const BatchColumns& lanes) const;
  void drop_preplan();
  void drop_staged(Drive& drive);
  void drop_preplan_of(RequestHandle handle);
  void give_up_lease();
  void commit_turns(Epoch epoch);
  void forget_turns_of(RequestHandle handle);
  Epoch end_step(Slot& slot);
  void check_stop_apart(std::span<const RequestView> requests, const HostRows& rows);

  Device& device_;
  std::optional<Stream> own_stream_;
  StreamRef stream_;
  NodeResources resources_;
  std::unique_ptr<NodeSubmodule> submodule_;
  StepRunner runner_;
  std::unique_ptr<GraphCatalog> graph_catalog_;
  Dtype compute_dtype_;
  std::unique_ptr<StepCaptures> captures_;
  CapturedSteps* captured_ = nullptr;
  std::optional<SlotLease> lease_;  // of the step that is being launched, or is planned ahead
  PaddedBatch padded_;
  GraphMisses misses_;
  std::array<std::unique_ptr<Slot>, kMaxInFlight> slots_;
  ResultRing results_;
  std::int32_t launched_turns_ =
      1;  // above 1: the first drive is that step's until it has completed
  std::int32_t completed_turns_ = 1;
  bool preplans_;
  bool planned_ahead_ = false;  // what lease_ and the first drive hold
  BucketQuery ahead_query_;
  std::vector<RequestHandle> ahead_handles_;
  PreplanCounts preplan_counts_;
  BatchedModelOutput lane_outputs_;  // of one of several drives
  OutputCollector collector_;
  RowTensors row_tensors_;
  RequestFailures failures_;
  std::vector<LoopStop> stops_;
  StepClock* clock_ = nullptr;
  lifetime::Steps<> steps_{kMaxInFlight};
};

}  // namespace rigel
