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

/// Whether a request goes on after the step in flight: not where its loop is known to end with it.
bool WalkRuntime::continues(const Cursor& cursor, std::uint16_t source,
                            const walk::Successor& successor) {
  const WalkNodeState& from = cursor.nodes[source];
  if (from.num_in_flight == from.num_discarded) {
    return false;  // its step in flight is of no use any more
  }
  if (!successor.is_new_iteration) {
    return true;
  }
  const WalkScopeState& scope = cursor.scopes[cursor.walk.nodes[successor.target].scope];
  return !scope.stopping && !scope.done && scope.iteration + from.ahead + 1 < scope.max_iters;
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

void WalkRuntime::speculate(WalkNode node, NodeId target, std::span<const RequestHandle> handles,
                            std::int64_t room, std::span<StreamOffer> offers,
                            SpeculatedRows& rows) {
  rows.clear();
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
  for (std::size_t lane = 0; lane < handles.size(); ++lane) {
    if (static_cast<std::int64_t>(rows.handles.size()) >= room) {
      break;
    }
    if (live_pass(walk, handles[lane]) == nullptr) {
      continue;
    }
    const Cursor cursor = cursor_of(walk, handles[lane]);
    bool possible = false;
    const InputMask missing = lacking(cursor, source, *successor, possible);
    if (!possible || !continues(cursor, source, *successor) ||
        (missing != 0 && !stage_offers(cursor, *successor, missing, offers, open, rows))) {
      continue;
    }
    rows.handles.push_back(handles[lane]);
    rows.lanes.push_back(static_cast<std::uint32_t>(lane));
    rows.iterations.push_back(cursor.scopes[scope].iteration +
                              (successor->is_new_iteration ? cursor.nodes[source].ahead + 1 : 0));
  }
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

void WalkRuntime::commit(SpeculationId id, std::span<const RequestHandle> dropped,
                         std::span<StreamOffer> offers, std::vector<std::uint32_t>& returned) {
  returned.clear();
  Open& open = open_of(id);
  const auto is_dropped = [&](RequestHandle handle) {
    return std::ranges::find(dropped, handle) != dropped.end();
  };
  const walk::CompiledWalk& walk = walk_of(open.target.walk);
  for (std::size_t index = 0; index < open.handles.size(); ++index) {
    if (dropped.empty() || !is_dropped(open.handles[index])) {
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

/// A row of a speculation is in flight from now on.
void WalkRuntime::fly(const walk::CompiledWalk& walk, const Open& open, std::size_t index) {
  const RequestHandle handle = open.handles[index];
  const WalkPass& pass = pass_at(walk.partition, handle);
  if (pass.handle != handle) {
    return;  // removed meanwhile; `land` will call the lane wasted
  }
  RIGEL_CHECK(pass.walk == static_cast<std::int16_t>(walk.id),
              "row {} has left walk {} before its step was launched", handle.row,
              static_cast<int>(walk.id));
  const Cursor cursor = cursor_of(walk, handle);
  WalkNodeState& state = cursor.nodes[open.node];
  const WalkScopeState& scope = cursor.scopes[walk.nodes[open.node].scope];
  ++state.num_in_flight;
  if (scope.done) {
    ++state.num_discarded;  // its loop has ended since the step was built
  } else {
    // The loop may have advanced since the step was built.
    state.ahead = static_cast<std::uint8_t>(open.iterations[index] - scope.iteration);
  }
  refresh_ready(cursor, open.node);
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
