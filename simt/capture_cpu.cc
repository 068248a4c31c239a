#include "simt/capture.h"

#include <algorithm>

namespace simt {

Capture::Capture(Queue& origin, std::uint32_t serial) : serial_(serial) {
  branches_.push_back({&origin, {}});
}

void Capture::invalidate(DeviceFault reason) {
  if (lost_.ok()) {
    lost_ = std::move(reason);
  }
}

Capture::Branch& Capture::branch(Queue& queue) {
  const auto found = std::find_if(branches_.begin(), branches_.end(),
                                  [&](const Branch& known) { return known.queue == &queue; });
  return found != branches_.end() ? *found : branches_.emplace_back(Branch{&queue, {}});
}

int Capture::append(std::vector<int> dependencies) {
  graph_.nodes.emplace_back().dependencies = std::move(dependencies);
  return static_cast<int>(graph_.nodes.size()) - 1;
}

void Capture::add(Queue& queue, const Command& command) {
  Branch& at = branch(queue);
  const int node = append(std::move(at.frontier));
  graph_.nodes.back().command = command;
  at.frontier = {node};
  if (command.order_key == nullptr) {
    return;
  }
  for (auto& [key, last] : last_of_key_) {
    if (key == command.order_key) {
      graph_.nodes.back().dependencies.push_back(last);
      last = node;
      return;
    }
  }
  last_of_key_.emplace_back(command.order_key, node);
}

int Capture::mark(Queue& queue) {
  Branch& at = branch(queue);
  if (at.frontier.size() != 1) {
    at.frontier = {append(std::move(at.frontier))};
  }
  return at.frontier.front();
}

void Capture::depend(Queue& queue, int node) {
  std::vector<int>& frontier = branch(queue).frontier;
  if (std::find(frontier.begin(), frontier.end(), node) == frontier.end()) {
    frontier.push_back(node);
  }
}

std::vector<Queue*> Capture::queues() const {
  std::vector<Queue*> result;
  for (const Branch& at : branches_) {
    result.push_back(at.queue);
  }
  return result;
}

int Capture::find_unjoined() const {
  // Edges lead upwards, so one sweep from the last node finds everything that the origin's end depends on.
  std::vector<bool> joined(graph_.nodes.size(), false);
  for (const int node : branches_.front().frontier) {
    joined[static_cast<std::size_t>(node)] = true;
  }
  for (std::size_t node = graph_.nodes.size(); node-- > 0;) {
    if (joined[node]) {
      for (const int dependency : graph_.nodes[node].dependencies) {
        joined[static_cast<std::size_t>(dependency)] = true;
      }
    }
  }
  for (const Branch& at : branches_) {
    for (const int node : at.frontier) {
      if (!joined[static_cast<std::size_t>(node)]) {
        return node;
      }
    }
  }
  return -1;
}

}  // namespace simt
