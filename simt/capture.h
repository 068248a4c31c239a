#pragma once

#include "simt/command.h"
#include "simt/device_fault.h"

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace simt {

class Queue;

/// A node of a captured graph: a command, or a mere join (`command.run` is null), and the earlier nodes it needs.
struct GraphNode {
  Command command;
  std::vector<int> dependencies;
};

/// A captured graph: nodes in the order of their calls, so that every edge leads from a lower to a higher index.
struct CommandGraph {
  std::vector<GraphNode> nodes;
  /// What is repeated behind all of those, as long as `condition` is not 0; a replay begins with 1. Null: nothing.
  std::vector<GraphNode> loop = {};
  std::unique_ptr<std::uint32_t> condition = nullptr;
};

/// A capture in progress: the DAG so far, and for each queue in it the nodes that its next command depends on. Queues join
/// by waiting for an event recorded in the capture (fork) and must be joined back before the end.
///
/// Thread: guarded by the device's capture lock.
class Capture {
 public:
  Capture(Queue& origin, std::uint32_t serial);

  [[nodiscard]] Queue& origin() const { return *branches_.front().queue; }
  [[nodiscard]] std::uint32_t serial() const { return serial_; }
  [[nodiscard]] std::thread::id owner() const { return owner_; }

  /// The capture is lost: every further call in it is refused, and so is its end.
  void invalidate(DeviceFault reason);
  [[nodiscard]] const DeviceFault& lost() const { return lost_; }

  void add(Queue& queue, const Command& command);
  /// A node that stands for everything in `queue` so far.
  int mark(Queue& queue);
  /// What follows in `queue` depends on `node`; a queue that is not part of the capture becomes one of its branches.
  void depend(Queue& queue, int node);

  /// All queues that take part, the origin first.
  [[nodiscard]] std::vector<Queue*> queues() const;
  /// The last node of a branch that does not lead to the origin's end, or -1.
  [[nodiscard]] int find_unjoined() const;
  CommandGraph take_graph() { return std::move(graph_); }

 private:
  struct Branch {
    Queue* queue;
    std::vector<int> frontier;
  };

  Branch& branch(Queue& queue);
  int append(std::vector<int> dependencies);

  const std::uint32_t serial_;
  const std::thread::id owner_ = std::this_thread::get_id();
  std::vector<Branch> branches_;
  std::vector<std::pair<const void*, int>> last_of_key_;
  CommandGraph graph_;
  DeviceFault lost_;
};

}  // namespace simt
