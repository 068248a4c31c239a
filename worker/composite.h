#pragma once

#include "worker/composite_listener.h"
#include "worker/composite_model.h"
#include "worker/node_runner.h"
#include "worker/node_step.h"
#include "worker/request.h"
#include "worker/request_table.h"
#include "worker/walk_context.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rigel {

/// Runs requests through the walks of a model of several nodes. Whichever (node, walk) was launched least recently is next, of
/// those that somebody waits for, where walks that a node combines count as one; a step that continues one in flight runs where
/// nobody else does. At most two steps are in flight over all nodes; they complete in the order of their launch.
///
/// A partition runs its walks in the order of its definition. An input that the request brings, or that a walk persisted, enters
/// the first walk that has it. A request that waits for something that nobody will bring fails. Thread: worker.
class Composite {
 public:
  static constexpr std::uint64_t kMaxInFlight = 2;

  /// Throws CheckError where engines and nodes do not match. `table` and `listener` outlive it. `max_step_tokens`: of a node whose
  /// rows are token sequences.
  Composite(CompositeModel model, RequestTable& table, CompositeListener& listener,
            std::int32_t max_step_tokens);
  ~Composite();

  /// What is wrong with a request's inputs; empty: nothing.
  [[nodiscard]] std::string find_error(const GenerationRequest& request) const;
  /// The request has a row; its inputs are taken.
  void open(RequestState& request);
  /// Forgets the request; the last step that touches its row.
  Epoch remove(RequestHandle handle);

  /// True where a step was launched.
  [[nodiscard]] bool launch_step();
  /// What a broken invariant throws on the way fails the step's requests and nobody else. Throws DeviceError.
  void complete_step();

  [[nodiscard]] std::uint64_t num_in_flight() const { return context_.steps.num_in_flight(); }
  [[nodiscard]] Epoch last_launched() const { return context_.steps.last_launched(); }
  [[nodiscard]] Epoch last_completed() const { return context_.steps.last_completed(); }
  [[nodiscard]] StreamRef stream() const { return context_.stream; }
  /// What all nodes have done so far.
  [[nodiscard]] NodeCounts counts() const;
  /// Lanes of the request in steps in flight.
  [[nodiscard]] std::int64_t num_lanes_in_flight(RequestHandle handle) const;
  /// The node of the last launched step. Requires that there was one.
  [[nodiscard]] NodeId last_node() const { return step_of(last_launched()).node; }
  [[nodiscard]] const Engine& engine_of(NodeId node) const {
    return runners_[static_cast<std::size_t>(node)]->engine();
  }
  [[nodiscard]] const walk::Names& names() const { return model_.program.names; }
  [[nodiscard]] bool has_captures_left() const;
  /// Captures one more step of some node; see StepCaptures::capture_next.
  void capture_next();
  /// Tensor handles held for requests, in walks and streams.
  [[nodiscard]] std::size_t num_tensors() const;

 private:
  struct Key {
    const walk::StepWalks* walks = nullptr;
    Epoch last_launch = 0;
    bool continues = false;  // the step in flight
  };
  /// Where a request stands, and what it brings to walks that have not begun.
  struct Row {
    RequestHandle handle;  // padding: nobody's
    std::vector<WalkInput> inputs;
    std::vector<std::pair<SignalId, TensorList>> persisted;
    std::vector<std::optional<WalkId>> walks;  // by partition; none: it is done
    std::vector<LoopId> ended_loops;           // stopped before their walk has begun
  };

  [[nodiscard]] NodeStep& step_of(Epoch epoch) { return steps_[epoch % kMaxInFlight]; }
  [[nodiscard]] const NodeStep& step_of(Epoch epoch) const { return steps_[epoch % kMaxInFlight]; }
  [[nodiscard]] NodeRunner& runner_of(NodeId node) {
    return *runners_[static_cast<std::size_t>(node)];
  }
  [[nodiscard]] Row& row_of(RequestHandle handle) {
    return rows_[static_cast<std::size_t>(handle.row)];
  }
  void check_combined(const walk::StepWalks& walks);
  void give_row_tensors(NodeId node);
  void add_taken_signals(const walk::CompiledWalk& walk, const walk::CompiledNode& node,
                         std::vector<SignalId>& signals);
  void begin_walk(RequestHandle handle, WalkId walk);
  [[nodiscard]] bool bound_loops(RequestHandle handle, const walk::CompiledWalk& walk);
  void enter_walk(RequestHandle handle, WalkId walk);
  void finish_walk(RequestHandle handle, WalkId walk);
  void poll_streams(RequestHandle handle);
  void find_keys();
  enum class Attempt : std::uint8_t { kNothing, kLaunched, kMadeRoom };
  [[nodiscard]] Attempt try_launch(Key& key);
  [[nodiscard]] bool make_room(NodeRunner& runner, const AdmitOutcome& refusal, NodeStep& step);
  void run_idle(NodeStep& step);
  void route_idle(WalkNode node, RequestHandle idle);
  void take_failures(NodeRunner& runner);
  void fail(RequestHandle handle, const std::string& error);
  void fail_stuck();
  [[nodiscard]] std::string missing_inputs(const Row& row) const;

  void land(const NodeStep& step);
  void land_walk(const NodeStep& step, WalkId walk);
  void stop_loops(const NodeStep& step, const HostRows& rows);
  void end_loops(const NodeStep& step, WalkId walk);
  void route(NodeStep& step, const HostRows& rows);
  void route_walk(NodeStep& step, WalkId walk, const HostRows& rows);
  void follow_routes(WalkNode node);
  void append_inline_values(const NodeStep& step, const HostRows& rows, std::size_t lane);
  [[nodiscard]] bool counts_new_tokens(WalkNode node, SignalId signal) const;
  void undo_overtaken(WalkId walk);
  void deliver_values();
  [[nodiscard]] Tensor to_host(const Tensor& tensor);

  // Declared first, so that what they made goes before them.
  CompositeModel model_;
  CachingAllocator allocator_;
  PinnedPool pinned_;
  Stream copies_;  // of what leaves for clients
  WalkContext context_;
  CompositeListener& listener_;
  std::vector<std::unique_ptr<NodeRunner>> runners_;  // by NodeId
  std::vector<Key> keys_;
  std::vector<Row> rows_;
  std::array<NodeStep, kMaxInFlight> steps_;  // by epoch

  std::int64_t num_wasted_rows_ = 0;
  std::uint64_t num_changes_ = 0;  // of requests, by other things than steps

  // Scratch.
  ReadyNodes ready_;
  std::vector<Key*> order_;
  std::vector<std::uint32_t> refused_;
  std::vector<std::uint32_t> wasted_;
  std::vector<RequestFailure> failures_;
  std::vector<RequestView> views_;
  std::vector<LoopStop> stops_;
  std::vector<LoopStop> walk_stops_;
  std::vector<LoopStop> stopped_;
  std::vector<std::size_t> landed_;   // lanes
  std::vector<std::size_t> landing_;  // of one walk
  std::vector<RequestHandle> handles_;
  std::vector<const SignalMap*> outputs_;
  std::vector<InlineValue> inlined_;
  std::vector<std::pair<RequestHandle, OutputValue>> values_;
  RouteOutput routed_;
};

}  // namespace rigel
