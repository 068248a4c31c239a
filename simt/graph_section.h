#pragma once

#include "simt/capture.h"
#include "simt/device_work.h"
#include "simt/options.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace simt {

/// The order of a program's nodes: that of the calls (ascending), the one furthest from it (descending), or a new random one
/// each time.
struct ReplayOrder {
  Order order = Order::kAscending;
  std::uint64_t random_state = 0;
};

/// Nodes of a program that run together: all of a graph, or a turn of its loop. Runs allocate nothing.
class GraphSection {
 public:
  /// In null mode `device` says which nodes run at all.
  GraphSection(std::vector<GraphNode> nodes, const VirtualDevice& device);

  /// Whether these nodes and edges are the section's, whatever their arguments.
  [[nodiscard]] bool is_like(const std::vector<GraphNode>& nodes) const;
  /// Takes the commands of nodes that are like the section's.
  void take(std::vector<GraphNode> nodes);

  /// Runs every node in some order that the edges allow; stops at the first fault.
  void run(VirtualDevice& device, ReplayOrder& order, DeviceFault& fault);
  void spoil_host_targets() const;
  void release_host_targets() const;

  [[nodiscard]] std::size_t num_commands() const { return commands_.size(); }
  /// What it takes of the host's memory.
  [[nodiscard]] std::int64_t num_bytes() const;

 private:
  void find_commands(const VirtualDevice& device);
  void find_successors();
  void find_host_targets();
  void run_in_call_order(VirtualDevice& device, DeviceFault& fault);
  void run_in_seeded_order(VirtualDevice& device, ReplayOrder& order, DeviceFault& fault);
  [[nodiscard]] std::size_t pick_ready(ReplayOrder& order) const;

  std::vector<GraphNode> nodes_;
  const bool null_mode_;
  std::vector<int> commands_;  // nodes that do something
  std::vector<int> runnable_;  // of null mode: those of them that run
  std::vector<CopyWork> host_targets_;
  std::vector<std::vector<int>> successors_;
  std::vector<int> num_missing_;
  std::vector<int> ready_;
};

}  // namespace simt
