#include "engine/contract/submodule.h"

#include "tensor/error.h"

#include <typeinfo>

namespace rigel {

void NodeSubmodule::bind_node_resources(const NodeResources& resources) {
  for (ResourceUser* layer : layers_) {
    layer->bind_resources(resources);
  }
}

std::unique_ptr<NodeInputs> NodeSubmodule::split_inputs(const RequestView&, const NodeInputs&,
                                                        std::int64_t, std::int64_t) {
  RIGEL_CHECK(false, "{} does not cut its inputs", typeid(*this).name());
  return nullptr;
}

const NodeInputs* NodeSubmodule::uniform_row_inputs(WalkId) const {
  return nullptr;
}

bool NodeSubmodule::combines_walks(WalkId /*label*/) const {
  return false;
}

bool NodeSubmodule::can_batch(const BatchColumns&) const {
  return false;
}

bool NodeSubmodule::can_use_cuda_graphs(const BatchColumns&) const {
  return true;
}

CgKey NodeSubmodule::cg_key_info(const BatchColumns&) const {
  return {};
}

bool NodeSubmodule::split_batches_by_capture_key(WalkId) const {
  return false;
}

bool NodeSubmodule::declare_step(const BatchColumns&, SubmoduleStep&) const {
  return false;
}

void NodeSubmodule::preprocess(const BatchColumns& batch, StepContext&) {
  RIGEL_CHECK(batch.handles.size() == 1, "{} does not put the rows of {} lanes together",
              typeid(*this).name(), batch.handles.size());
}

void NodeSubmodule::forward_batched(const ModelInputsFromEngine& inputs,
                                    BatchedModelOutput& outputs) {
  forward(inputs, outputs);
}

void NodeSubmodule::unpack_packed_outputs(const BatchedModelOutput::Packed&, const BatchColumns&,
                                          RequestOutputs&) {}

void NodeSubmodule::filter_batched_output(const RequestView&, SignalMap&) const {}

std::span<const SignalId> NodeSubmodule::device_loopback_signals(WalkId) const {
  return {};
}

std::span<const InlineSignal> NodeSubmodule::inline_client_signals(WalkId) const {
  return {};
}

void NodeSubmodule::postprocess(const RequestView&, SignalMap&, const NodeInputs&) {}

std::vector<LoopId> NodeSubmodule::check_stop(const RequestView&, const HostRows&) const {
  return {};
}

bool NodeSubmodule::check_stop_batched(std::span<const RequestView>, const HostRows&,
                                       std::vector<LoopStop>&) const {
  return false;
}

void NodeSubmodule::cleanup_request(RequestHandle) {}

std::optional<std::int32_t> NodeSubmodule::max_batch_size(WalkId) const {
  return std::nullopt;
}

std::optional<Dtype> NodeSubmodule::compute_dtype() const {
  return std::nullopt;
}

bool NodeSubmodule::disable_autocast() const {
  return false;
}

const Device* NodeSubmodule::get_device() const {
  return nullptr;
}

std::vector<CudaGraphConfig> NodeSubmodule::get_cuda_graph_configs(Device&, int) const {
  return {};
}

std::vector<PiecewiseCudaGraphConfig> NodeSubmodule::get_piecewise_cuda_graph_configs(Device&,
                                                                                      Dtype,
                                                                                      int) const {
  return {};
}

std::unique_ptr<NodeInputs> ArNodeSubmodule::split_inputs(const RequestView&,
                                                          const NodeInputs& inputs,
                                                          std::int64_t start, std::int64_t end) {
  const auto* row = dynamic_cast<const ArNodeInputs*>(&inputs);
  RIGEL_CHECK(row != nullptr, "an autoregressive node cuts ArNodeInputs only");
  return split_ar_inputs(*row, start, end);
}

std::optional<LoopBounds> NodeSubmodule::loop_bounds(LoopId /*loop*/,
                                                     const RequestInfo& /*info*/) const {
  return std::nullopt;
}

std::unique_ptr<NodeInputs> ArNodeSubmodule::replay_inputs(const RequestView& /*request*/,
                                                           const Tensor& tokens) {
  auto row = std::make_unique<ArNodeInputs>();
  row->input_ids = tokens;
  row->input_seq_len = tokens.dim(0);
  return row;
}

}  // namespace rigel
