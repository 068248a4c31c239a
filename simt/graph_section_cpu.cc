#include "simt/graph_section.h"
#include "simt/virtual_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace simt {

GraphSection::GraphSection(std::vector<GraphNode> nodes, const VirtualDevice& device)
    : nodes_(std::move(nodes)), null_mode_(device.options().mode == QueueMode::kNull) {
  find_commands(device);
  find_successors();
  find_host_targets();
}

void GraphSection::find_commands(const VirtualDevice& device) {
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    const Command& command = nodes_[node].command;
    if (command.run != nullptr) {
      commands_.push_back(static_cast<int>(node));
      if (null_mode_ && device.runs_in_null_mode(command)) {
        runnable_.push_back(static_cast<int>(node));
      }
    }
  }
}

void GraphSection::find_successors() {
  successors_.resize(nodes_.size());
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    for (const int dependency : nodes_[node].dependencies) {
      successors_[static_cast<std::size_t>(dependency)].push_back(static_cast<int>(node));
    }
  }
  num_missing_.resize(nodes_.size());
  ready_.reserve(nodes_.size());
}

bool GraphSection::is_like(const std::vector<GraphNode>& nodes) const {
  return std::equal(nodes.begin(), nodes.end(), nodes_.begin(), nodes_.end(),
                    [](const GraphNode& theirs, const GraphNode& ours) {
                      return ours.dependencies == theirs.dependencies &&
                             ours.command.kind == theirs.command.kind &&
                             std::strcmp(ours.command.name, theirs.command.name) == 0;
                    });
}

void GraphSection::take(std::vector<GraphNode> nodes) {
  nodes_ = std::move(nodes);
  find_host_targets();
}

void GraphSection::find_host_targets() {
  host_targets_.clear();
  for (const int node : commands_) {
    const Command& command = nodes_[static_cast<std::size_t>(node)].command;
    if (command.kind == Command::Kind::kCopy) {
      CopyWork work;
      std::memcpy(&work, command.closure, sizeof work);
      if (work.direction == CopyDirection::kDeviceToHost) {
        host_targets_.push_back(work);
      }
    }
  }
}

std::int64_t GraphSection::num_bytes() const {
  // A node with its dependencies and successors, its place among the commands and its two counters.
  std::size_t num_edges = 0;
  for (const GraphNode& node : nodes_) {
    num_edges += node.dependencies.size();
  }
  return static_cast<std::int64_t>(
      nodes_.size() * (sizeof(GraphNode) + sizeof(std::vector<int>) + 4 * sizeof(int)) +
      2 * num_edges * sizeof(int));
}

void GraphSection::spoil_host_targets() const {
  for (const CopyWork& copy : host_targets_) {
    copy.spoil_host_target();
  }
}

void GraphSection::release_host_targets() const {
  for (const CopyWork& copy : host_targets_) {
    copy.release_host_target();
  }
}

void GraphSection::run(VirtualDevice& device, ReplayOrder& order, DeviceFault& fault) {
  if (order.order == Order::kAscending || null_mode_) {
    run_in_call_order(device, fault);
  } else {
    run_in_seeded_order(device, order, fault);
  }
}

void GraphSection::run_in_call_order(VirtualDevice& device, DeviceFault& fault) {
  for (const int node : null_mode_ ? runnable_ : commands_) {
    device.run(nodes_[static_cast<std::size_t>(node)].command, fault);
    if (!fault.ok()) {
      return;
    }
  }
}

void GraphSection::run_in_seeded_order(VirtualDevice& device, ReplayOrder& order,
                                       DeviceFault& fault) {
  ready_.clear();
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    num_missing_[node] = static_cast<int>(nodes_[node].dependencies.size());
    if (num_missing_[node] == 0) {
      ready_.push_back(static_cast<int>(node));
    }
  }
  while (!ready_.empty()) {
    const std::size_t picked = pick_ready(order);
    const auto node = static_cast<std::size_t>(ready_[picked]);
    ready_[picked] = ready_.back();
    ready_.pop_back();
    Command& command = nodes_[node].command;
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

std::size_t GraphSection::pick_ready(ReplayOrder& order) const {
  if (order.order == Order::kDescending) {
    return static_cast<std::size_t>(std::max_element(ready_.begin(), ready_.end()) -
                                    ready_.begin());
  }
  // splitmix64
  order.random_state += 0x9E3779B97F4A7C15u;
  std::uint64_t mixed = order.random_state;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
  return static_cast<std::size_t>((mixed ^ (mixed >> 31)) % ready_.size());
}

}  // namespace simt
