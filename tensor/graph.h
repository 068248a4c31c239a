#pragma once

#include "simt/loop_condition.h"
#include "tensor/stream.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rigel {

using simt::LoopCondition;

namespace detail {
struct GraphState;
struct GraphExecState;
}  // namespace detail

/// A captured graph of launches, copies and host functions. Move-only.
class Graph {
 public:
  explicit Graph(std::unique_ptr<detail::GraphState> state);
  ~Graph();
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;

  /// Nodes that do something (joins of branches do not count), a loop's once.
  [[nodiscard]] int num_nodes() const;
  /// Their names, for tests and reports.
  [[nodiscard]] std::vector<std::string> node_names() const;
  [[nodiscard]] detail::GraphState& state() const { return *state_; }

 private:
  std::unique_ptr<detail::GraphState> state_;
};

/// Captures what this thread puts on a stream, and on streams forked from it by events, instead of running it. The capture
/// ends with `end`, or is thrown away with this object.
///
/// Synchronising, querying, allocating, freeing and copying pageable memory are refused meanwhile (DeviceError with CUDA's
/// code), and the capture is lost: `end` then throws. Thread: the one that began it.
class GraphCapture {
 public:
  explicit GraphCapture(StreamRef stream);
  ~GraphCapture();
  GraphCapture(const GraphCapture&) = delete;
  GraphCapture& operator=(const GraphCapture&) = delete;

  /// What is captured from here to the end is repeated behind the rest: once, and again as long as the condition is not 0 at
  /// the end of a turn. A replay begins with 1; a kernel of the loop is given the condition and sets it (`set_loop_condition`).
  /// Every forked stream must have been joined, and what comes does not wait for events of what was before. Call it at most
  /// once. Throws DeviceError when the capture is lost.
  [[nodiscard]] LoopCondition begin_loop();

  /// Every forked stream must have been joined. Throws DeviceError when the capture is lost.
  [[nodiscard]] Graph end();

 private:
  StreamRef stream_;
  std::unique_ptr<detail::GraphState> head_;  // what is in front of the loop; null: there is none
  bool open_ = true;
};

/// An instantiated graph. Argument values are those of the capture; memory is read and written anew in each replay.
/// Move-only; its end waits for its last replay.
class GraphExec {
 public:
  explicit GraphExec(Graph graph);
  ~GraphExec();
  GraphExec(GraphExec&&) noexcept;
  GraphExec& operator=(GraphExec&&) noexcept;

  /// Puts one replay on the stream; replays of one GraphExec never overlap. Cost: one driver call.
  void launch(StreamRef stream);
  /// Takes the arguments of a graph with the same nodes and edges; false if it differs. No replay may be pending.
  [[nodiscard]] bool update(Graph graph);
  [[nodiscard]] int num_nodes() const;
  [[nodiscard]] const std::vector<std::string>& node_names() const;
  /// What it takes of the memory that its device has: on CUDA as measured around its making.
  [[nodiscard]] std::int64_t num_bytes() const;

 private:
  std::unique_ptr<detail::GraphExecState> state_;
};

}  // namespace rigel
