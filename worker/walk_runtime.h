#pragma once

#include "engine/contract/request_info.h"
#include "engine/contract/submodule.h"
#include "model/walk/program.h"
#include "tensor/error.h"
#include "worker/walk_columns.h"
#include "worker/walk_state.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace rigel {

/// Where each request stands in its walks: which inputs have arrived, which nodes could run, what the next iteration waits
/// for. One iteration of the worker, with step N in flight:
///
///   targets(N.node, N.handles[0], targets);                    // build N+1: who could run ahead, and on what
///   speculate(N.node, targets[0].node, N.handles, room, offers, rows);
///   pop(node, fresh handles, check_ready = true);              //   and fresh rows of the same node behind them
///   commit(rows.id, {}, offers, returned)                      // N+1 is launched (abandon(...): it is not)
///   ... N completes ...
///   land(N.node, N.handles, wasted);                           // lanes that a loop's end has overtaken drop out here
///   stop_loops(N.node, stops, stopped);                        // from check_stop, for what is left
///   route({N.node, handles, outputs}, routed);                 // values move on, loops advance or end
///   update_loop_counters(N.node.walk, handles, infos);
///   ... send `routed`, set_walk or remove_request where a walk has finished ...
///   ready_nodes(...) and pop(...)                              // where there was nothing to speculate on
///
/// A step that is not run: push_back gives popped rows back, set_in_flight(..., false) ends committed ones. A non-final part of
/// a long prompt is popped and pushed back once it is launched, and only the last part lands.
///
/// A speculated row's stop is known one step late. Such a stop ends the loop with the iteration in hand; the steps ahead of it
/// are then worthless, and `land` says so for exactly those steps. Nothing else has to remember it.
///
/// Dead handles: `land` calls their lanes wasted and set_in_flight(..., false) passes over them, since a request may be removed
/// while a step that carries it is in flight; elsewhere they are an error (CheckError), as are unknown nodes and walks.
///
/// Thread: worker. Cost: some ns a row for each call where values stay on the device; no heap once warm.
class WalkRuntime {
 public:
  /// `program` outlives the runtime.
  WalkRuntime(const walk::Program& program, std::int32_t num_rows);

  // Requests.
  /// Opens a partition of a request and starts `walk` (idempotent for a partition that is open).
  void add_request(RequestHandle handle, PartitionId partition, WalkId walk);
  /// Drops all that it holds. The row may have a new owner at once.
  void remove_request(RequestHandle handle);
  [[nodiscard]] bool contains(RequestHandle handle) const;
  /// Begins a new pass: inputs, loops and counters start anew. Steps of the walk before may still be in flight, unless that is
  /// the same walk: their values then go only to the client, to streams and to persistence, and nowhere if they were ahead of
  /// a walk that is over.
  void set_walk(RequestHandle handle, WalkId walk);
  /// The request's own bound of a loop, and the iteration at which it (re)starts, before the loop's first step.
  void set_loop(RequestHandle handle, WalkId walk, LoopId loop, std::int32_t max_iters,
                std::int32_t iteration = 0);

  // Inputs from outside.
  /// Takes in what fits and moves its tensors; writes the indices of the others to `refused`. `can_buffer`: an input that is
  /// there already may wait for the next iteration. A stream's chunk (`is_streaming`) is never buffered, and is taken only
  /// when the node waits for nothing else than chunks.
  void ingest(std::span<WalkInput> inputs, bool can_buffer, bool is_streaming,
              std::vector<std::uint32_t>& refused);

  // Scheduling.
  /// Nodes with requests that could run now, in program order, without the rows of `exclude`. `target`: only that node;
  /// `exclude_target`: all but that one.
  void ready_nodes(const RowSet* exclude, std::optional<WalkNode> target,
                   std::optional<WalkNode> exclude_target, ReadyNodes& ready) const;
  /// Whether anything but these nodes could run.
  [[nodiscard]] bool has_ready_excluding(std::span<const WalkNode> nodes) const;
  /// Takes requests out of the ready set for a step. With `check_ready` it takes all of them or none (false); without it a
  /// request that is not ready is an error.
  [[nodiscard]] bool pop(WalkNode node, std::span<const RequestHandle> handles, bool check_ready);
  /// Undoes a pop; inputs are still in place.
  void push_back(WalkNode node, std::span<const RequestHandle> handles);
  /// Adds what has arrived at a node to `signals`, without tensors where it came without. Handles are shared.
  void gather_inputs(WalkNode node, RequestHandle handle, SignalMap& signals) const;
  /// Counts a step in flight in or out without taking or consuming inputs.
  void set_in_flight(WalkNode node, std::span<const RequestHandle> handles, bool in_flight);

  // One step ahead.
  /// What could run one step ahead of `node`, tried on one of its requests; leaves no trace.
  void targets(WalkNode node, RequestHandle sample, std::vector<SpeculationTarget>& targets) const;
  /// The rows that continue: not those whose loop is stopping or at its last iteration, nor more than `room`. Accepted offers
  /// stand in the target's slots until the speculation is settled.
  void speculate(WalkNode node, NodeId target, std::span<const RequestHandle> handles,
                 std::int64_t room, std::span<StreamOffer> offers, SpeculatedRows& rows);
  /// Settles a speculation, once: the rows are in flight, but for those `dropped`, whose chunks are undone like those of
  /// `abandon`. `offers` are those given to speculate.
  void commit(SpeculationId id, std::span<const RequestHandle> dropped,
              std::span<StreamOffer> offers, std::vector<std::uint32_t>& returned);
  /// Settles a speculation, once: nothing of it remains. Writes the offers whose tensors are back to `returned`; a chunk that
  /// has become current meanwhile stays where it is and is not returned.
  void abandon(SpeculationId id, std::span<StreamOffer> offers,
               std::vector<std::uint32_t>& returned);

  // Completion.
  /// A step's rows have run: their consumed inputs are released. `wasted`: lanes whose loop ended before them; they take no
  /// further part.
  void land(WalkNode node, std::span<const RequestHandle> handles,
            std::vector<std::uint32_t>& wasted);
  /// Ends loops with the iteration in hand. Writes the stops that were one: a loop that the walk does not have, has ended, or
  /// is stopping already is passed over.
  void stop_loops(WalkNode node, std::span<const LoopStop> stops, std::vector<LoopStop>& stopped);
  /// The time of a loop now, for a stop that is applied later.
  [[nodiscard]] LoopTime loop_time(RequestHandle handle, WalkId walk, LoopId loop) const;
  /// Stops a loop unless it has come to another activation since; false then.
  bool stop_loop_at(const LoopTime& time, WalkId walk);
  /// Hands the outputs on, marks the node done, and advances or ends the loops around it.
  void route(const RouteInput& step, RouteOutput& routed);
  /// `land` and then `route` of a step whose values all stay on the device, in one pass over its lanes. Its stops come before.
  void land_and_route(WalkNode node, std::span<const RequestHandle> handles,
                      std::vector<std::uint32_t>& wasted, RouteOutput& routed);
  /// Writes the counters of the requests' loops into their infos.
  void update_loop_counters(WalkId walk, std::span<const RequestHandle> handles,
                            std::span<RequestInfo* const> infos) const;

  // The end of partitions and requests.
  void mark_partition_done(RequestHandle handle, PartitionId partition);
  /// Whether every open partition is done.
  [[nodiscard]] bool is_done(RequestHandle handle) const;

  /// Tensor handles held for all requests.
  [[nodiscard]] std::size_t num_tensors() const;
  [[nodiscard]] const walk::Program& program() const { return program_; }

 private:
  struct Staged {
    RequestHandle handle;
    std::uint32_t offer = 0;
    std::uint8_t input = 0;
    bool in_next = false;
  };
  /// A speculation that is not settled.
  struct Open {
    bool live = false;
    SpeculationId id{};
    WalkNode target;
    std::uint16_t node = 0;
    std::vector<RequestHandle> handles;
    std::vector<std::int32_t>
        iterations;  // at which each row will run, in the target's innermost scope
    std::vector<Staged> staged;
  };
  /// One request in its walk, as the calls work on it.
  struct Cursor {
    const walk::CompiledWalk& walk;
    WalkPasses& passes;
    RequestHandle handle;
    WalkNodeState* nodes;
    WalkScopeState* scopes;
  };

  [[nodiscard]] const walk::CompiledWalk& walk_of(WalkId id) const;
  [[nodiscard]] static std::uint16_t node_of(const walk::CompiledWalk& walk, NodeId node);
  [[nodiscard]] static std::uint16_t scope_of(const walk::CompiledWalk& walk, LoopId loop);
  [[nodiscard]] WalkPasses& passes_of(const walk::CompiledWalk& walk) const {
    return passes_[static_cast<std::size_t>(walk.partition)];
  }
  [[nodiscard]] RowSet& ready_set(const walk::CompiledWalk& walk, std::uint16_t node) const {
    return ready_[first_ready_[static_cast<std::size_t>(walk.id)] + node];
  }
  static void check_row(RequestHandle handle, std::int32_t num_rows) {
    RIGEL_CHECK(handle.row >= 0 && handle.row < num_rows, "row {} of {}", handle.row, num_rows);
  }
  void check_row(RequestHandle handle) const { check_row(handle, num_rows_); }
  /// The row's pass, whoever owns it.
  [[nodiscard]] WalkPass& pass_at(PartitionId partition, RequestHandle handle) const {
    check_row(handle);
    RIGEL_CHECK(static_cast<std::size_t>(partition) < passes_.size(), "partition {} of {}",
                static_cast<int>(partition), passes_.size());
    return passes_[static_cast<std::size_t>(partition)].pass(handle.row);
  }
  /// Null where the handle is dead, or the request's pass is through another walk.
  [[nodiscard]] WalkPass* live_pass(const walk::CompiledWalk& walk, RequestHandle handle) const {
    WalkPass& pass = pass_at(walk.partition, handle);
    return pass.handle == handle && pass.walk == static_cast<std::int16_t>(walk.id) ? &pass
                                                                                    : nullptr;
  }
  /// The same where that is known.
  [[nodiscard]] Cursor cursor_of(const walk::CompiledWalk& walk, RequestHandle handle) const {
    WalkPasses& passes = passes_of(walk);
    return {walk, passes, handle, passes.nodes(handle.row), passes.scopes(handle.row)};
  }
  /// Requires a live request in this walk.
  [[nodiscard]] Cursor at(const walk::CompiledWalk& walk, RequestHandle handle) const;

  void reset_pass(WalkPass& pass, WalkPasses& passes, std::int16_t walk);
  void refresh_ready(const Cursor& cursor, std::uint16_t node) const;

  // Inputs of one node.
  static void put_current(const Cursor& cursor, std::uint16_t node, int input,
                          const TensorList& tensors);
  static void put_next(const Cursor& cursor, std::uint16_t node, int input,
                       const TensorList& tensors);
  static void release_current(const Cursor& cursor, std::uint16_t node, walk::InputMask inputs);
  static void release_next(const Cursor& cursor, std::uint16_t node, walk::InputMask inputs);
  [[nodiscard]] bool take_in(WalkInput& input, bool can_buffer, bool is_streaming);

  // Speculation.
  [[nodiscard]] static walk::InputMask lacking(const Cursor& cursor, std::uint16_t source,
                                               const walk::Successor& successor, bool& possible);
  [[nodiscard]] static bool feeds_itself_alone(const walk::CompiledWalk& walk, std::uint16_t source,
                                               const walk::Successor& successor);
  [[nodiscard]] static bool continues(const WalkNodeState& from, const WalkScopeState& scope,
                                      const walk::Successor& successor);
  [[nodiscard]] bool stage_offers(const Cursor& cursor, const walk::Successor& successor,
                                  walk::InputMask missing, std::span<StreamOffer> offers,
                                  Open& open, SpeculatedRows& rows);
  [[nodiscard]] Open& open_of(SpeculationId id);
  void undo_staged(Open& open, const Staged& staged, std::span<StreamOffer> offers,
                   std::vector<std::uint32_t>& returned);
  [[nodiscard]] std::size_t loop_ahead(WalkPasses::NodeRows states, WalkId walk,
                                       std::span<const RequestHandle> handles,
                                       SpeculatedRows& rows) const;
  [[nodiscard]] static std::size_t fly_on(WalkPasses::NodeRows rows, WalkId walk,
                                          std::span<const RequestHandle> handles,
                                          std::span<const std::int32_t> iterations,
                                          std::size_t first);
  void fly(const walk::CompiledWalk& walk, const Open& open, std::size_t index);

  // Completion.
  /// A node whose step is being completed: what the lanes have in common.
  struct Completion {
    const walk::CompiledWalk& walk;
    std::uint16_t node;
    walk::InputMask refilled;  // what a step of it consumes
    /// The inputs that it feeds itself, where its step without tensors moves the loop on and nothing else.
    std::optional<walk::InputMask> self_fed;
    WalkPasses::NodeRows rows;
  };
  [[nodiscard]] Completion completion_of(WalkNode node) const;
  /// False: the lane is wasted.
  [[nodiscard]] bool land_lane(const Completion& step, RequestHandle handle);
  void route_lane(const Completion& step, RequestHandle handle, const SignalMap* outputs,
                  RouteOutput& routed);
  [[nodiscard]] static bool loop_on(WalkPasses::NodeRow row, WalkId walk, walk::InputMask refilled,
                                    walk::InputMask self_fed, RequestHandle handle);
  void emit(const Cursor& cursor, bool is_here, const walk::Output& output,
            const TensorList& tensors, RouteOutput& routed);
  void finish_child(const Cursor& cursor, std::uint16_t scope, RouteOutput& routed);
  void advance_loop(const Cursor& cursor, std::uint16_t scope);
  void end_loop(const Cursor& cursor, std::uint16_t scope, RouteOutput& routed);

  const walk::Program& program_;
  std::int32_t num_rows_;
  mutable std::vector<WalkPasses>
      passes_;  // by partition; const calls hand out cursors and change nothing
  mutable std::vector<RowSet> ready_;
  std::vector<std::uint32_t> first_ready_;       // by walk: its first node's ready set
  std::vector<std::int16_t> partition_of_node_;  // by NodeId; -1: of none
  std::array<Open, 4> open_;
  std::vector<std::int32_t> first_offer_;  // by row, during speculate; -1: none
  std::uint32_t num_speculations_ = 0;
};

}  // namespace rigel
