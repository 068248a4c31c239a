#include "engine/contract/submodule.h"

#include "tensor/error.h"

#include <typeinfo>

namespace rigel {

std::unique_ptr<NodeInputs> NodeSubmodule::split_inputs(const RequestView&, const NodeInputs&,
                                                        std::int64_t, std::int64_t) {
  RIGEL_CHECK(false, "{} does not cut its inputs", typeid(*this).name());
  return nullptr;
}

const NodeInputs* NodeSubmodule::uniform_row_inputs(WalkId) const {
  return nullptr;
}

bool NodeSubmodule::can_batch(const BatchColumns&) const {
  return false;
}

bool NodeSubmodule::declare_step(const BatchColumns&, SubmoduleStep&) const {
  return false;
}

void NodeSubmodule::unpack_packed_outputs(const BatchedModelOutput::Packed&, const BatchColumns&,
                                          RequestOutputs&) {}

void NodeSubmodule::filter_batched_output(const RequestView&, SignalMap&) const {}

std::span<const SignalId> NodeSubmodule::device_loopback_signals(WalkId) const {
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

std::unique_ptr<NodeInputs> ArNodeSubmodule::split_inputs(const RequestView&,
                                                          const NodeInputs& inputs,
                                                          std::int64_t start, std::int64_t end) {
  const auto* row = dynamic_cast<const ArNodeInputs*>(&inputs);
  RIGEL_CHECK(row != nullptr, "an autoregressive node cuts ArNodeInputs only");
  return split_ar_inputs(*row, start, end);
}

}  // namespace rigel
