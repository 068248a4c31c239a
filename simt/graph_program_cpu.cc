#include "simt/graph_program.h"
#include "simt/virtual_device.h"

#include <utility>

namespace simt {

GraphProgram::GraphProgram(CommandGraph graph, const VirtualDevice& device)
    : head_(std::move(graph.nodes), device),
      loop_(std::move(graph.loop), device),
      condition_(std::move(graph.condition)),
      order_{device.options().executor.order, device.options().executor.seed} {}

DeviceFault GraphProgram::update(CommandGraph graph) {
  if (!head_.is_like(graph.nodes) || !loop_.is_like(graph.loop) ||
      (condition_ == nullptr) != (graph.condition == nullptr)) {
    return {FaultCode::kGraphExecUpdateFailure, "the graphs differ in nodes or edges"};
  }
  head_.take(std::move(graph.nodes));
  loop_.take(std::move(graph.loop));
  condition_ = std::move(graph.condition);
  return {};
}

void GraphProgram::spoil_host_targets() const {
  head_.spoil_host_targets();
  loop_.spoil_host_targets();
}

void GraphProgram::release_host_targets() const {
  head_.release_host_targets();
  loop_.release_host_targets();
}

void GraphProgram::replay(VirtualDevice& device, DeviceFault& fault) {
  head_.run(device, order_, fault);
  if (fault.ok() && condition_ != nullptr) {
    run_loop(device, fault);
  }
  if (!fault.ok()) {
    release_host_targets();
  }
}

void GraphProgram::run_loop(VirtualDevice& device, DeviceFault& fault) {
  const bool null_mode = device.options().mode == QueueMode::kNull;
  *condition_ = 1;
  while (*condition_ != 0 && fault.ok()) {
    // In null mode nobody may be there who says that the loop ends.
    *condition_ = null_mode ? 0 : 1;
    loop_.run(device, order_, fault);
  }
}

}  // namespace simt
