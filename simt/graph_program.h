#pragma once

#include "simt/graph_section.h"
#include "simt/moment.h"

#include <cstdint>
#include <memory>

namespace simt {

/// An instantiated graph. A replay runs its nodes in some order that the edges allow: that of the calls (ascending), the
/// one furthest from it (descending), or a new random one each time. A forgotten edge shows in the latter two. Behind them it
/// runs the graph's loop, turn after turn, each in such an order, until a kernel has ended it.
///
/// Thread: one replay at a time (the device makes launches of one program wait for each other). Replays allocate nothing.
class GraphProgram {
 public:
  /// `device` decides the order and, in null mode, which nodes run at all.
  GraphProgram(CommandGraph graph, const VirtualDevice& device);

  /// Takes the commands of a graph with the same nodes and edges.
  DeviceFault update(CommandGraph graph);

  /// Runs every node; stops at the first fault. In null mode a loop has one turn unless a command says otherwise.
  void replay(VirtualDevice& device, DeviceFault& fault);
  /// Called when a launch is enqueued: see CopyWork::spoil_host_target.
  void spoil_host_targets() const;
  /// After a failed or skipped replay.
  void release_host_targets() const;

  /// Nodes that do something, a loop's counted once.
  [[nodiscard]] int num_commands() const {
    return static_cast<int>(head_.num_commands() + loop_.num_commands());
  }

  /// What it takes of the host's memory.
  [[nodiscard]] std::int64_t num_bytes() const { return head_.num_bytes() + loop_.num_bytes(); }

  /// The end of the latest launch.
  [[nodiscard]] Moment last_launch() const { return last_launch_; }
  void set_last_launch(Moment moment) { last_launch_ = moment; }

 private:
  void run_loop(VirtualDevice& device, DeviceFault& fault);

  GraphSection head_;
  GraphSection loop_;
  std::unique_ptr<std::uint32_t> condition_;  // null: there is no loop
  ReplayOrder order_;
  Moment last_launch_;
};

}  // namespace simt
