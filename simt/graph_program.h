#pragma once

#include "simt/capture.h"
#include "simt/device_work.h"
#include "simt/moment.h"
#include "simt/options.h"

#include <cstdint>
#include <vector>

namespace simt {

/// An instantiated graph. A replay runs its nodes in some order that the edges allow: that of the calls (ascending), the
/// one furthest from it (descending), or a new random one each time. A forgotten edge shows in the latter two.
///
/// Thread: one replay at a time (the device makes launches of one program wait for each other). Replays allocate nothing.
class GraphProgram {
 public:
  /// `device` decides the order and, in null mode, which nodes run at all.
  GraphProgram(CommandGraph graph, const VirtualDevice& device);

  /// Takes the commands of a graph with the same nodes and edges.
  DeviceFault update(CommandGraph graph);

  /// Runs every node; stops at the first fault.
  void replay(VirtualDevice& device, DeviceFault& fault);
  /// Called when a launch is enqueued: see CopyWork::spoil_host_target.
  void spoil_host_targets() const;
  /// After a failed or skipped replay.
  void release_host_targets() const;

  /// Nodes that do something, and their names in the order of the calls.
  [[nodiscard]] int num_commands() const { return static_cast<int>(commands_.size()); }
  [[nodiscard]] const char* name_of_command(int index) const {
    return graph_.nodes[static_cast<std::size_t>(commands_[static_cast<std::size_t>(index)])]
        .command.name;
  }

  /// What it takes of the host's memory.
  [[nodiscard]] std::int64_t num_bytes() const;

  /// The end of the latest launch.
  [[nodiscard]] Moment last_launch() const { return last_launch_; }
  void set_last_launch(Moment moment) { last_launch_ = moment; }

 private:
  void find_commands(const VirtualDevice& device);
  void find_successors();
  void find_host_targets();
  void run_in_call_order(VirtualDevice& device, DeviceFault& fault);
  void run_in_seeded_order(VirtualDevice& device, DeviceFault& fault);
  std::size_t pick_ready();

  CommandGraph graph_;
  const Order order_;
  std::uint64_t random_state_;
  const bool null_mode_;
  std::vector<int> commands_;
  std::vector<int> runnable_;  // of null mode: the commands that run
  std::vector<CopyWork> host_targets_;
  std::vector<std::vector<int>> successors_;
  std::vector<int> num_missing_;
  std::vector<int> ready_;
  Moment last_launch_;
};

}  // namespace simt
