#pragma once

#include "engine/contract/batched_output.h"
#include "engine/contract/capture_key.h"
#include "engine/contract/engine_inputs.h"
#include "engine/contract/graph_config.h"
#include "engine/contract/host_rows.h"
#include "engine/contract/ids.h"
#include "engine/contract/node_inputs.h"
#include "engine/contract/request_info.h"
#include "engine/contract/request_state.h"
#include "engine/contract/signals.h"
#include "engine/step.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace rigel {

class Device;
class NodeResources;
class StepContext;

/// What prepare_inputs is given beside the signals.
struct PrepareContext {
  WalkId walk{};
  const SignalMap* signals = nullptr;
  bool is_final_stream_chunk = false;
};

/// The lanes of a batch, as the batch-wide hooks see them.
struct BatchColumns {
  WalkId walk{};
  std::span<const RequestHandle> handles;
  std::span<const RequestInfo* const> infos;
  std::span<const InputMetadata> metadata;
  std::span<const NodeInputs* const> inputs;
  const SlotLease* slot_lease =
      nullptr;  // the captured step that these lanes will replay; null: they run eagerly
  PiecewiseLeases region_leases = {};  // regions that declare their resources themselves
};

/// A signal whose value goes to the client out of a row buffer: no tensor of it leaves the node.
struct InlineSignal {
  SignalId signal{};
  SignalId row_buffer{};
};

/// One request's value of such a signal: (1, ...), valid as long as the rows that it stands in.
struct InlineValue {
  SignalId signal{};
  ConstHostView value;
};

/// A part of a submodule that calls resources itself, such as an attention layer.
class ResourceUser {
 public:
  virtual ~ResourceUser() = default;
  /// Takes the resources it needs by name; a missing one is missed here and not in a forward.
  virtual void bind_resources(const NodeResources& resources) = 0;
};

/// A loop of one request that ends after this step.
struct LoopStop {
  RequestHandle handle;
  LoopId loop{};
};

/// How often a loop around a node runs for one request, where that is known before the loop begins.
struct LoopBounds {
  std::int32_t first_iteration = 0;  // what the request has of the loop already
  std::int32_t max_iterations = 0;   // at most `first_iteration`: nothing of it is left to run
};

/// The compute unit of one node of a model. The engine drives its hooks in one order, all on the thread that owns the step:
/// prepare_inputs (a request) -> can_batch -> [a captured step: can_use_cuda_graphs, cg_key_info] -> declare_step ->
/// [resources: admit, plan] -> preprocess -> forward -> [commit] -> unpack_packed_outputs -> filter_batched_output,
/// postprocess (a request); later, when the step's values have reached the host, check_stop_batched or check_stop;
/// cleanup_request when the request is removed. A hook may throw: the engine turns that into the failure of its request or
/// batch. README.md is the whole contract.
class NodeSubmodule {
 public:
  virtual ~NodeSubmodule() = default;

  /// The names of the resources that the node needs; the engine refuses to load it without one of them.
  [[nodiscard]] virtual std::vector<std::string> get_node_resources() const { return {}; }

  /// Once, after the node's resources are built. A resource that the node lacks must be missed here. The base class binds the
  /// layers that were added with add_layer, each once, in that order.
  virtual void bind_node_resources(const NodeResources& resources);

  /// This request's row for the step, or null: it declines the step. Must not read values that the device still computes.
  [[nodiscard]] virtual std::unique_ptr<NodeInputs> prepare_inputs(const PrepareContext& context,
                                                                   const RequestView& request) = 0;

  /// Tokens [start, end) of a prepared row. The base class refuses.
  [[nodiscard]] virtual std::unique_ptr<NodeInputs> split_inputs(const RequestView& request,
                                                                 const NodeInputs& inputs,
                                                                 std::int64_t start,
                                                                 std::int64_t end);

  /// One immutable row that serves every lane of a step of this walk, or null. Equal to what prepare_inputs would give.
  [[nodiscard]] virtual const NodeInputs* uniform_row_inputs(WalkId walk) const;

  /// Whether rows of several walks may run in one step, which then bears this walk id, a label that is no walk. Each row says
  /// its own walk (NodeInputs::walk). Fixed at load.
  [[nodiscard]] virtual bool combines_walks(WalkId label) const;

  /// Whether these lanes may run in one forward.
  [[nodiscard]] virtual bool can_batch(const BatchColumns& batch) const;

  /// Whether a captured step may serve this batch. Asked where some graph config replays the batch's walk, be it as an alias,
  /// so only shape and metadata are left to say no for.
  [[nodiscard]] virtual bool can_use_cuda_graphs(const BatchColumns& batch) const;
  /// Which of its walk's captures a batch belongs to: the key of the config that captured it. Must equal what declare_step puts
  /// on the step; the engine runs a step eagerly, and counts it, where the two differ. Reads walk, infos and metadata alone:
  /// `inputs` may be empty, because the scheduler asks before anything is prepared.
  [[nodiscard]] virtual CgKey cg_key_info(const BatchColumns& batch) const;
  /// Whether the scheduler batches each capture group of this walk apart: for walks whose mixed batch runs worse than two
  /// captured ones.
  [[nodiscard]] virtual bool split_batches_by_capture_key(WalkId walk) const;

  /// Declares the step into `step` (already reset); false: the node uses no resources. Pure: it may be called again for the same
  /// step; reads no tensor contents. Padding lanes are declared like any other. What depends on being captured depends on
  /// `batch.slot_lease`: the key says that the batch could be, the lease says that it is.
  [[nodiscard]] virtual bool declare_step(const BatchColumns& batch, SubmoduleStep& step) const;

  /// Writes what the forward needs from the prepared rows into the step's staging, under signal names. Host work only. The
  /// base class stages nothing for a single lane, whose row the forward reads itself, and refuses more.
  virtual void preprocess(const BatchColumns& batch, StepContext& context);

  /// Enqueues the computation of one lane on the stream. No host reads of device values, no allocation, no synchronisation.
  virtual void forward(const ModelInputsFromEngine& inputs, BatchedModelOutput& outputs) = 0;
  /// The same for a batch that can_batch said yes to, or for a step that is captured, whose lanes are padding; lane i is
  /// handles[i]. The base class hands it to forward, which then serves any number of lanes.
  virtual void forward_batched(const ModelInputsFromEngine& inputs, BatchedModelOutput& outputs);

  /// Cuts packed outputs by request and adds the parts to `outputs`, which win over what is there. Called where the forward gave
  /// packed outputs, with the step's real lanes; the base class drops them. Parts may share a packed tensor's storage.
  virtual void unpack_packed_outputs(const BatchedModelOutput::Packed& packed,
                                     const BatchColumns& batch, RequestOutputs& outputs);

  /// Takes out what this request should not get: a captured forward gives the same signals to all.
  virtual void filter_batched_output(const RequestView& request, SignalMap& outputs) const;

  /// Signals of this walk whose values the next step reads on the device: they leave the node without tensors. Fixed at load.
  [[nodiscard]] virtual std::span<const SignalId> device_loopback_signals(WalkId walk) const;
  /// Signals of this walk that the client gets by value, and the row buffers that hold the values. Fixed at load.
  [[nodiscard]] virtual std::span<const InlineSignal> inline_client_signals(WalkId walk) const;

  /// Edits one request's outputs after the forward. Metadata only.
  virtual void postprocess(const RequestView& request, SignalMap& outputs,
                           const NodeInputs& inputs);

  /// The loops that end for this request after this step, inner first.
  [[nodiscard]] virtual std::vector<LoopId> check_stop(const RequestView& request,
                                                       const HostRows& rows) const;

  /// The same for every request with a row; must agree with check_stop. False: use check_stop.
  [[nodiscard]] virtual bool check_stop_batched(std::span<const RequestView> requests,
                                                const HostRows& rows,
                                                std::vector<LoopStop>& stops) const;

  /// The request's own bounds of a loop around this node, asked when it begins the walk; none: those of the dataflow.
  [[nodiscard]] virtual std::optional<LoopBounds> loop_bounds(LoopId loop,
                                                              const RequestInfo& info) const;

  /// The request was removed. What the submodule keeps in its request state needs no cleanup: the engine erases it.
  virtual void cleanup_request(RequestHandle handle);

  /// The states of this submodule's requests. The engine opens one at admission and erases it at removal.
  [[nodiscard]] RequestStateStore& request_states() { return request_states_; }
  /// Throws CheckError where the request is not open.
  [[nodiscard]] PerRequestState& request_state(RequestHandle handle) {
    return request_states_.at(handle);
  }

  /// Lanes a step of this walk may have; none: no limit of the model's own.
  [[nodiscard]] virtual std::optional<std::int32_t> max_batch_size(WalkId walk) const;

  // Asked once, at load.

  /// The type of the node's activations; none: the engine's.
  [[nodiscard]] virtual std::optional<Dtype> compute_dtype() const;
  /// True: the node works in the type of its parameters (f32), whatever compute_dtype says.
  [[nodiscard]] virtual bool disable_autocast() const;
  /// The device that the parameters are on; null where there are none.
  [[nodiscard]] virtual const Device* get_device() const;
  /// The captures of whole steps that the submodule wants.
  [[nodiscard]] virtual std::vector<CudaGraphConfig> get_cuda_graph_configs(
      Device& device, int tensor_parallel_size) const;
  /// The captures of inner regions that it wants; `dtype` is what the captured region computes in.
  [[nodiscard]] virtual std::vector<PiecewiseCudaGraphConfig> get_piecewise_cuda_graph_configs(
      Device& device, Dtype dtype, int tensor_parallel_size) const;

 protected:
  /// A layer that bind_node_resources passes the resources on to. It lives as long as the submodule.
  void add_layer(ResourceUser& layer) { layers_.push_back(&layer); }

 private:
  std::vector<ResourceUser*> layers_;
  RequestStateStore request_states_;
};

/// An autoregressive node: its rows are token sequences, which can be cut.
class ArNodeSubmodule : public NodeSubmodule {
 public:
  [[nodiscard]] std::unique_ptr<NodeInputs> split_inputs(const RequestView& request,
                                                         const NodeInputs& inputs,
                                                         std::int64_t start,
                                                         std::int64_t end) override;
  /// A row of all tokens that this node has sampled for a request whose cache was lost, to be run behind those that it was
  /// given. The last one was in no step yet: the row's last part takes the place of that step, and samples like it.
  [[nodiscard]] virtual std::unique_ptr<NodeInputs> replay_inputs(const RequestView& request,
                                                                  const Tensor& tokens);
  /// Sequences of several lanes are put together by the model.
  void preprocess(const BatchColumns& batch, StepContext& context) override = 0;
};

}  // namespace rigel
