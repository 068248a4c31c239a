#pragma once

#include "engine/contract/batched_output.h"
#include "engine/contract/engine_inputs.h"
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
#include <vector>

namespace rigel {

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
};

/// A loop of one request that ends after this step.
struct LoopStop {
  RequestHandle handle;
  LoopId loop{};
};

/// The compute unit of one node of a model. The engine drives its hooks in one order, all on the thread that owns the step:
/// prepare_inputs (a request) -> can_batch -> declare_step -> [resources: admit, plan] -> preprocess -> forward -> [commit] ->
/// unpack_packed_outputs -> filter_batched_output, postprocess (a request); later, when the step's values have reached the host, check_stop_batched or check_stop; cleanup_request when
/// the request is removed. A hook may throw: the engine turns that into the failure of its request or batch.
class NodeSubmodule {
 public:
  virtual ~NodeSubmodule() = default;

  /// Once, after the node's resources are built. A resource that the node lacks must be missed here.
  virtual void bind_node_resources(const NodeResources& resources) = 0;

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

  /// Whether these lanes may run in one forward.
  [[nodiscard]] virtual bool can_batch(const BatchColumns& batch) const;

  /// Declares the step into `step` (already reset); false: the node uses no resources. Pure; reads no tensor contents.
  [[nodiscard]] virtual bool declare_step(const BatchColumns& batch, SubmoduleStep& step) const;

  /// Writes what the forward needs from the prepared rows into the step's staging, under signal names. Host work only.
  virtual void preprocess(const BatchColumns& batch, StepContext& context) = 0;

  /// Enqueues the computation of the whole batch on the stream; lane i is handles[i]. No host reads of device values, no
  /// allocation, no synchronisation.
  virtual void forward(const ModelInputsFromEngine& inputs, BatchedModelOutput& outputs) = 0;

  /// Cuts packed outputs by request and adds the parts to `outputs`, which win over what is there. Called where the forward gave
  /// packed outputs, with the step's real lanes; the base class drops them. Parts may share a packed tensor's storage.
  virtual void unpack_packed_outputs(const BatchedModelOutput::Packed& packed,
                                     const BatchColumns& batch, RequestOutputs& outputs);

  /// Takes out what this request should not get: a captured forward gives the same signals to all.
  virtual void filter_batched_output(const RequestView& request, SignalMap& outputs) const;

  /// Signals of this walk whose values the next step reads on the device: they leave the node without tensors. Fixed at load.
  [[nodiscard]] virtual std::span<const SignalId> device_loopback_signals(WalkId walk) const;

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

 private:
  RequestStateStore request_states_;
};

/// An autoregressive node: its rows are token sequences, which can be cut.
class ArNodeSubmodule : public NodeSubmodule {
 public:
  [[nodiscard]] std::unique_ptr<NodeInputs> split_inputs(const RequestView& request,
                                                         const NodeInputs& inputs,
                                                         std::int64_t start,
                                                         std::int64_t end) override;
};

}  // namespace rigel
