// Steps that are built before the step in flight has produced their inputs.

#include "tensor/error.h"
#include "worker/walk_runtime.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace rigel {

using walk::InputMask;

/// Inputs that the target would still wait for once the source's outputs are here; `possible` says whether its turn would come
/// with them.
InputMask WalkRuntime::lacking(const Cursor& cursor, std::uint16_t source,
                               const walk::Successor& successor, bool& possible) {
  const walk::CompiledNode& target = cursor.walk.nodes[successor.target];
  const WalkNodeState& from = cursor.nodes[source];
  const WalkNodeState& to = cursor.nodes[successor.target];
  const bool is_idle = !to.taken && to.num_in_flight == to.num_discarded;
  if (!successor.is_new_iteration) {
    possible = from.ahead == 0 && !to.done && is_idle;
    return target.required & ~(to.current | successor.fed);
  }
  const walk::Scope& scope = cursor.walk.scopes[target.scope];
  const bool ends_iteration =
      scope.num_children == 1 || (from.ahead == 0 && !from.done &&
                                  cursor.scopes[target.scope].num_done + 1 == scope.num_children);
  possible = ends_iteration && (successor.target == source || is_idle);
  const InputMask kept = to.current & ~target.refilled[scope.depth];
  const InputMask promoted = to.next & target.promoted[scope.depth];
  return target.required & ~(kept | promoted | successor.fed);
}

/// Whether the source is all that its loop repeats and gives itself all that it needs: then nothing is lacking, ever.
bool WalkRuntime::feeds_itself_alone(const walk::CompiledWalk& walk, std::uint16_t source,
                                     const walk::Successor& successor) {
  const walk::CompiledNode& node = walk.nodes[source];
  return successor.is_new_iteration && successor.target == source &&
         walk.scopes[node.scope].num_children == 1 && (node.required & ~successor.fed) == 0;
}

/// Whether a request goes on after the step in flight: not where its loop is known to end with it.
inline bool WalkRuntime::continues(const WalkNodeState& from, const WalkScopeState& scope,
                                   const walk::Successor& successor) {
  if (from.num_in_flight == from.num_discarded) {
    return false;  // its step in flight is of no use any more
  }
  return !successor.is_new_iteration ||
         (!scope.stopping && !scope.done && scope.iteration + from.ahead + 1 < scope.max_iters);
}

void WalkRuntime::targets(WalkNode node, RequestHandle sample,
                          std::vector<SpeculationTarget>& targets) const {
  targets.clear();
  const walk::CompiledWalk& walk = walk_of(node.walk);
  const std::uint16_t source = node_of(walk, node.node);
  if (live_pass(walk, sample) == nullptr) {
    return;
  }
  const Cursor cursor = at(walk, sample);
  const walk::Range range = walk.successors_of[source];
  for (std::uint16_t index = range.begin; index < range.end; ++index) {
    const walk::Successor& successor = walk.successors[index];
    const walk::CompiledNode& target = walk.nodes[successor.target];
    bool possible = false;
    // Chunks of streams may still be offered.
    if ((lacking(cursor, source, successor, possible) & ~target.streaming) != 0 || !possible) {
      continue;
    }
    targets.push_back(
        {target.id, successor.is_new_iteration,
         successor.is_new_iteration ? std::optional(walk.scopes[target.scope].loop) : std::nullopt,
         walk.consumed_by(successor)});
  }
}

/// The rows that go on one iteration where each gives itself all that it needs: at most as many as `rows` has room for.
/// Returns how many. By value: what the sweep reads of its own is then in registers.
std::size_t WalkRuntime::loop_ahead(WalkPasses::NodeRows states, WalkId walk,
                                    std::span<const RequestHandle> handles,
                                    SpeculatedRows& rows) const {
  const std::int32_t num_rows = num_rows_;
  const std::span<RequestHandle> to_handles = rows.handles;
  const std::span<std::uint32_t> to_lanes = rows.lanes;
  const std::span<std::int32_t> to_iterations = rows.iterations;
  const std::size_t most = to_handles.size();
  std::size_t count = 0;
  for (std::size_t lane = 0; lane < handles.size() && count < most; ++lane) {
    const RequestHandle handle = handles[lane];
    check_row(handle, num_rows);
    const auto [pass, from, loop] = states[handle.row];
    const std::int32_t iteration = loop.iteration + from.ahead + 1;
    if (pass.handle == handle && pass.walk == static_cast<std::int16_t>(walk) &&
        from.num_in_flight != from.num_discarded && !loop.stopping && !loop.done &&
        iteration < loop.max_iters) {
      to_handles[count] = handle;
      to_lanes[count] = static_cast<std::uint32_t>(lane);
      to_iterations[count] = iteration;
      ++count;
    }
  }
  return count;
}

void WalkRuntime::speculate(WalkNode node, NodeId target, std::span<const RequestHandle> handles,
                            std::int64_t room, std::span<StreamOffer> offers,
                            SpeculatedRows& rows) {
  rows.accepted_offers.clear();
  const walk::CompiledWalk& walk = walk_of(node.walk);
  const std::uint16_t source = node_of(walk, node.node);
  const std::uint16_t target_node = node_of(walk, target);
  const auto begin = walk.successors.begin() + walk.successors_of[source].begin;
  const auto end = walk.successors.begin() + walk.successors_of[source].end;
  const auto successor = std::find_if(
      begin, end, [=](const walk::Successor& other) { return other.target == target_node; });
  RIGEL_CHECK(successor != end, "node {} cannot run ahead of node {}", static_cast<int>(target),
              static_cast<int>(node.node));
  const auto free = std::ranges::find(open_, false, &Open::live);
  RIGEL_CHECK(free != open_.end(), "{} speculations are not settled", open_.size());
  Open& open = *free;
  open.live = true;
  open.id = static_cast<SpeculationId>(++num_speculations_);
  open.target = {node.walk, target};
  open.node = target_node;
  open.handles.clear();
  open.iterations.clear();
  open.staged.clear();
  rows.id = open.id;

  for (std::size_t index = offers.size(); index-- > 0;) {
    first_offer_[static_cast<std::size_t>(offers[index].handle.row)] =
        static_cast<std::int32_t>(index);
  }
  const std::uint16_t scope = walk.nodes[target_node].scope;
  const bool feeds_itself = feeds_itself_alone(walk, source, *successor);
  const std::size_t most =
      std::min(handles.size(), static_cast<std::size_t>(std::max(room, std::int64_t{0})));
  rows.resize(most);
  const WalkPasses::NodeRows states = passes_of(walk).rows_of(source, scope);
  const auto walk_number = static_cast<std::int16_t>(walk.id);
  std::size_t count = feeds_itself ? loop_ahead(states, walk.id, handles, rows) : 0;
  for (std::size_t lane = 0; lane < handles.size() && count < most && !feeds_itself; ++lane) {
    const RequestHandle handle = handles[lane];
    check_row(handle, num_rows_);
    const auto [pass, from, loop] = states[handle.row];
    if (pass.handle != handle || pass.walk != walk_number || !continues(from, loop, *successor)) {
      continue;
    }
    const Cursor cursor = cursor_of(walk, handle);
    bool possible = false;
    const InputMask missing = lacking(cursor, source, *successor, possible);
    if (!possible ||
        (missing != 0 && !stage_offers(cursor, *successor, missing, offers, open, rows))) {
      continue;
    }
    rows.handles[count] = handle;
    rows.lanes[count] = static_cast<std::uint32_t>(lane);
    rows.iterations[count] = loop.iteration + (successor->is_new_iteration ? from.ahead + 1 : 0);
    ++count;
  }
  rows.resize(count);
  open.handles.assign(rows.handles.begin(), rows.handles.end());
  open.iterations.assign(rows.iterations.begin(), rows.iterations.end());
  for (const StreamOffer& offer : offers) {
    first_offer_[static_cast<std::size_t>(offer.handle.row)] = -1;
  }
}

/// Stages an offer for each missing input; false, with nothing staged, where one is not offered.
bool WalkRuntime::stage_offers(const Cursor& cursor, const walk::Successor& successor,
                               InputMask missing, std::span<StreamOffer> offers, Open& open,
                               SpeculatedRows& rows) {
  const walk::CompiledNode& target = cursor.walk.nodes[successor.target];
  const std::int32_t first = first_offer_[static_cast<std::size_t>(cursor.handle.row)];
  if ((missing & ~target.streaming) != 0 || first < 0) {
    return false;
  }
  const std::size_t num_before = open.staged.size();
  for (InputMask rest = missing; rest != 0; rest &= rest - 1) {
    const int input = std::countr_zero(rest);
    const SignalId name = cursor.walk.input_name(successor.target, input);
    const auto found = std::find_if(offers.begin() + first, offers.end(), [&](const auto& offer) {
      return offer.handle == cursor.handle && offer.input == name;
    });
    if (found == offers.end()) {
      open.staged.resize(num_before);
      return false;
    }
    open.staged.push_back({cursor.handle, static_cast<std::uint32_t>(found - offers.begin()),
                           static_cast<std::uint8_t>(input), successor.is_new_iteration});
  }
  for (std::size_t index = num_before; index < open.staged.size(); ++index) {
    const Staged& staged = open.staged[index];
    TensorList& tensors = offers[staged.offer].tensors;
    if (staged.in_next) {
      put_next(cursor, successor.target, staged.input, tensors);
    } else {
      put_current(cursor, successor.target, staged.input, tensors);
    }
    tensors.clear();
    rows.accepted_offers.push_back(staged.offer);
  }
  return true;
}

WalkRuntime::Open& WalkRuntime::open_of(SpeculationId id) {
  const auto open =
      std::ranges::find_if(open_, [id](const Open& other) { return other.live && other.id == id; });
  RIGEL_CHECK(open != open_.end(), "speculation {} is settled or was never made",
              static_cast<std::uint32_t>(id));
  return *open;
}

/// Rows of a speculation from `first` on are in flight from now on, up to one that has no step in flight or whose loop is over.
/// Returns how many. By value: what the sweep reads of its own is then in registers.
std::size_t WalkRuntime::fly_on(WalkPasses::NodeRows rows, WalkId walk,
                                std::span<const RequestHandle> handles,
                                std::span<const std::int32_t> iterations, std::size_t first) {
  const auto walk_number = static_cast<std::int16_t>(walk);
  std::size_t index = first;
  for (; index < handles.size(); ++index) {
    const auto [pass, state, scope] = rows[handles[index].row];
    if (pass.handle != handles[index] || pass.walk != walk_number || scope.done ||
        state.num_in_flight == state.num_discarded) {
      break;
    }
    ++state.num_in_flight;
    state.ahead = static_cast<std::uint8_t>(iterations[index] - scope.iteration);
  }
  return index - first;
}

/// The same of one row, whatever has become of it.
void WalkRuntime::fly(const walk::CompiledWalk& walk, const Open& open, std::size_t index) {
  const WalkPasses::NodeRows rows = passes_of(walk).rows_of(open.node, walk.nodes[open.node].scope);
  const RequestHandle handle = open.handles[index];
  const auto [pass, state, scope] = rows[handle.row];
  if (pass.handle != handle) {
    return;  // removed meanwhile; `land` will call the lane wasted
  }
  RIGEL_CHECK(pass.walk == static_cast<std::int16_t>(walk.id),
              "row {} has left walk {} before its step was launched", handle.row,
              static_cast<int>(walk.id));
  const bool was_idle = state.num_in_flight == state.num_discarded;
  ++state.num_in_flight;
  if (scope.done) {
    ++state.num_discarded;  // its loop has ended since the step was built
  } else {
    // The loop may have advanced since the step was built.
    state.ahead = static_cast<std::uint8_t>(open.iterations[index] - scope.iteration);
  }
  if (was_idle) {
    refresh_ready(cursor_of(walk, handle), open.node);
  }
}

void WalkRuntime::commit(SpeculationId id, std::span<const RequestHandle> dropped,
                         std::span<StreamOffer> offers, std::vector<std::uint32_t>& returned) {
  returned.clear();
  Open& open = open_of(id);
  const auto is_dropped = [&](RequestHandle handle) {
    return std::ranges::find(dropped, handle) != dropped.end();
  };
  const walk::CompiledWalk& walk = walk_of(open.target.walk);
  const WalkPasses::NodeRows rows = passes_of(walk).rows_of(open.node, walk.nodes[open.node].scope);
  for (std::size_t index = 0; index < open.handles.size(); ++index) {
    if (dropped.empty()) {
      index += fly_on(rows, walk.id, open.handles, open.iterations, index);
    }
    if (index < open.handles.size() && !is_dropped(open.handles[index])) {
      fly(walk, open, index);
    }
  }
  for (const Staged& staged : open.staged) {
    if (is_dropped(staged.handle)) {
      undo_staged(open, staged, offers, returned);
    }
  }
  open.live = false;
}

void WalkRuntime::abandon(SpeculationId id, std::span<StreamOffer> offers,
                          std::vector<std::uint32_t>& returned) {
  returned.clear();
  Open& open = open_of(id);
  for (const Staged& staged : open.staged) {
    undo_staged(open, staged, offers, returned);
  }
  open.live = false;
}

void WalkRuntime::undo_staged(Open& open, const Staged& staged, std::span<StreamOffer> offers,
                              std::vector<std::uint32_t>& returned) {
  const walk::CompiledWalk& walk = walk_of(open.target.walk);
  if (live_pass(walk, staged.handle) == nullptr) {
    return;
  }
  const Cursor cursor = at(walk, staged.handle);
  WalkNodeState& state = cursor.nodes[open.node];
  const InputMask bit = InputMask{1} << staged.input;
  const bool is_there =
      staged.in_next ? (state.next & bit) != 0 : (state.current & bit) != 0 && !state.taken;
  if (!is_there) {
    return;  // has become current: the node will run on it, and the buffer must not have it, too
  }
  const auto slot = static_cast<std::size_t>(walk.nodes[open.node].first_input + staged.input);
  TensorList& held = staged.in_next ? cursor.passes.next(staged.handle.row, slot)
                                    : cursor.passes.current(staged.handle.row, slot);
  RIGEL_CHECK(staged.offer < offers.size(), "offer {} of {}", staged.offer, offers.size());
  const bool has_tensors =
      ((staged.in_next ? state.next_tensors : state.current_tensors) & bit) != 0;
  if (has_tensors) {
    offers[staged.offer].tensors = std::move(held);
  }
  if (staged.in_next) {
    release_next(cursor, open.node, bit);
  } else {
    release_current(cursor, open.node, bit);
    refresh_ready(cursor, open.node);
  }
  returned.push_back(staged.offer);
}

}  // namespace rigel
