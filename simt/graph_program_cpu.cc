#include "simt/graph_program.h"
#include "simt/virtual_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace simt {

GraphProgram::GraphProgram(CommandGraph graph, const VirtualDevice& device)
    : graph_(std::move(graph)),
      order_(device.options().executor.order),
      random_state_(device.options().executor.seed),
      null_mode_(device.options().mode == QueueMode::kNull) {
  find_commands(device);
  find_successors();
  find_host_targets();
}

void GraphProgram::find_commands(const VirtualDevice& device) {
  for (std::size_t node = 0; node < graph_.nodes.size(); ++node) {
    const Command& command = graph_.nodes[node].command;
    if (command.run != nullptr) {
      commands_.push_back(static_cast<int>(node));
      if (null_mode_ && device.runs_in_null_mode(command)) {
        runnable_.push_back(static_cast<int>(node));
      }
    }
  }
}

void GraphProgram::find_successors() {
  successors_.resize(graph_.nodes.size());
  for (std::size_t node = 0; node < graph_.nodes.size(); ++node) {
    for (const int dependency : graph_.nodes[node].dependencies) {
      successors_[static_cast<std::size_t>(dependency)].push_back(static_cast<int>(node));
    }
  }
  num_missing_.resize(graph_.nodes.size());
  ready_.reserve(graph_.nodes.size());
}

DeviceFault GraphProgram::update(CommandGraph graph) {
  bool same = graph.nodes.size() == graph_.nodes.size();
  for (std::size_t node = 0; same && node < graph.nodes.size(); ++node) {
    const GraphNode& ours = graph_.nodes[node];
    const GraphNode& theirs = graph.nodes[node];
    same = ours.dependencies == theirs.dependencies && ours.command.kind == theirs.command.kind &&
           std::strcmp(ours.command.name, theirs.command.name) == 0;
  }
  if (!same) {
    return {FaultCode::kGraphExecUpdateFailure, "the graphs differ in nodes or edges"};
  }
  graph_ = std::move(graph);
  find_host_targets();
  return {};
}

void GraphProgram::find_host_targets() {
  host_targets_.clear();
  for (const int node : commands_) {
    const Command& command = graph_.nodes[static_cast<std::size_t>(node)].command;
    if (command.kind == Command::Kind::kCopy) {
      CopyWork work;
      std::memcpy(&work, command.closure, sizeof work);
      if (work.direction == CopyDirection::kDeviceToHost) {
        host_targets_.push_back(work);
      }
    }
  }
}

std::int64_t GraphProgram::num_bytes() const {
  // A node with its dependencies and successors, its place among the commands and its two counters.
  std::size_t num_edges = 0;
  for (const GraphNode& node : graph_.nodes) {
    num_edges += node.dependencies.size();
  }
  return static_cast<std::int64_t>(
      graph_.nodes.size() * (sizeof(GraphNode) + sizeof(std::vector<int>) + 4 * sizeof(int)) +
      2 * num_edges * sizeof(int));
}

void GraphProgram::spoil_host_targets() const {
  for (const CopyWork& copy : host_targets_) {
    copy.spoil_host_target();
  }
}

void GraphProgram::release_host_targets() const {
  for (const CopyWork& copy : host_targets_) {
    copy.release_host_target();
  }
}

void GraphProgram::replay(VirtualDevice& device, DeviceFault& fault) {
  if (order_ == Order::kAscending || null_mode_) {
    run_in_call_order(device, fault);
  } else {
    run_in_seeded_order(device, fault);
  }
  if (!fault.ok()) {
    release_host_targets();
  }
}

void GraphProgram::run_in_call_order(VirtualDevice& device, DeviceFault& fault) {
  for (const int node : null_mode_ ? runnable_ : commands_) {
    device.run(graph_.nodes[static_cast<std::size_t>(node)].command, fault);
    if (!fault.ok()) {
      return;
    }
  }
}

void GraphProgram::run_in_seeded_order(VirtualDevice& device, DeviceFault& fault) {
  ready_.clear();
  for (std::size_t node = 0; node < graph_.nodes.size(); ++node) {
    num_missing_[node] = static_cast<int>(graph_.nodes[node].dependencies.size());
    if (num_missing_[node] == 0) {
      ready_.push_back(static_cast<int>(node));
    }
  }
  while (!ready_.empty()) {
    const std::size_t picked = pick_ready();
    const auto node = static_cast<std::size_t>(ready_[picked]);
    ready_[picked] = ready_.back();
    ready_.pop_back();
    Command& command = graph_.nodes[node].command;
    if (command.run != nullptr) {
      device.run(command, fault);
    }
    if (!fault.ok()) {
      return;
    }
    for (const int successor : successors_[node]) {
      if (--num_missing_[static_cast<std::size_t>(successor)] == 0) {
        ready_.push_back(successor);
      }
    }
  }
}

std::size_t GraphProgram::pick_ready() {
  if (order_ == Order::kDescending) {
    return static_cast<std::size_t>(std::max_element(ready_.begin(), ready_.end()) -
                                    ready_.begin());
  }
  // splitmix64
  random_state_ += 0x9E3779B97F4A7C15u;
  std::uint64_t mixed = random_state_;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
  return static_cast<std::size_t>((mixed ^ (mixed >> 31)) % ready_.size());
}

}  // namespace simt
