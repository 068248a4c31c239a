// A step's lanes when it has completed: what it consumed is consumed, and its outputs go on their way.

#include "tensor/error.h"
#include "worker/walk_runtime.h"

#include <optional>

namespace rigel {

using walk::InputMask;
using walk::Target;

namespace {

const TensorList kNoTensors;

/// The inputs that a node feeds itself, where it is all that its loop repeats and everything else that it gives off leaves the
/// walk: a step without tensors then moves the loop on, and nothing else.
std::optional<InputMask> self_fed_inputs(const walk::CompiledWalk& walk, std::uint16_t node) {
  const walk::CompiledNode& compiled = walk.nodes[node];
  const walk::Scope& scope = walk.scopes[compiled.scope];
  if (compiled.scope == 0 || scope.num_children != 1 || !scope.cells.empty() ||
      scope.scopes.end - scope.scopes.begin != 1) {
    return std::nullopt;
  }
  InputMask fed = 0;
  for (std::uint16_t index = compiled.outputs.begin; index < compiled.outputs.end; ++index) {
    const walk::Output& output = walk.outputs[index];
    for (std::uint16_t at = output.targets.begin; at < output.targets.end; ++at) {
      const Target& target = walk.targets[at];
      if (target.kind == Target::Kind::kLoopBack && target.node == node) {
        fed |= InputMask{1} << target.input;
      } else if (target.kind == Target::Kind::kForward || target.kind == Target::Kind::kLoopBack) {
        return std::nullopt;
      }
    }
  }
  return (fed & ~compiled.promoted[scope.depth]) == 0 ? std::optional(fed) : std::nullopt;
}

}  // namespace

WalkRuntime::Completion WalkRuntime::completion_of(WalkNode node) const {
  const walk::CompiledWalk& walk = walk_of(node.walk);
  const std::uint16_t index = node_of(walk, node.node);
  const walk::CompiledNode& compiled = walk.nodes[index];
  return {walk, index, compiled.refilled[walk.scopes[compiled.scope].depth],
          self_fed_inputs(walk, index), passes_of(walk).rows_of(index, compiled.scope)};
}

void WalkRuntime::land(WalkNode node, std::span<const RequestHandle> handles,
                       std::vector<std::uint32_t>& wasted) {
  wasted.clear();
  const Completion step = completion_of(node);
  for (std::size_t lane = 0; lane < handles.size(); ++lane) {
    if (!land_lane(step, handles[lane])) {
      wasted.push_back(static_cast<std::uint32_t>(lane));
    }
  }
}

bool WalkRuntime::land_lane(const Completion& step, RequestHandle handle) {
  check_row(handle);
  const auto [pass, state, scope] = step.rows[handle.row];
  if (pass.handle != handle) {
    return false;
  }
  // Steps land in the order of their launch, so those of a walk that was left come first.
  if (pass.num_left > 0 && pass.left_walk == static_cast<std::int16_t>(step.walk.id)) {
    --pass.num_left;
    return !pass.left_is_waste;
  }
  RIGEL_CHECK(pass.walk == static_cast<std::int16_t>(step.walk.id), "row {} is not in walk {}",
              handle.row, static_cast<int>(step.walk.id));
  RIGEL_CHECK(state.num_in_flight > 0, "row {} has no step in flight at node {}", handle.row,
              static_cast<int>(step.walk.nodes[step.node].id));
  --state.num_in_flight;
  if (state.num_discarded > 0) {
    --state.num_discarded;
    refresh_ready(cursor_of(step.walk, handle), step.node);
    return false;
  }
  state.taken = false;
  if (state.current_tensors == 0) {
    state.current &= ~step.refilled;
  } else {
    release_current(cursor_of(step.walk, handle), step.node, step.refilled);
  }
  return true;
}

void WalkRuntime::route(const RouteInput& step, RouteOutput& routed) {
  routed.clear();
  RIGEL_CHECK(step.outputs.empty() || step.outputs.size() == step.handles.size(),
              "{} outputs for {} requests", step.outputs.size(), step.handles.size());
  const Completion completion = completion_of(step.node);
  for (std::size_t lane = 0; lane < step.handles.size(); ++lane) {
    route_lane(completion, step.handles[lane], step.outputs.empty() ? nullptr : step.outputs[lane],
               routed);
  }
}

void WalkRuntime::route_lane(const Completion& step, RequestHandle handle, const SignalMap* outputs,
                             RouteOutput& routed) {
  check_row(handle);
  // A request whose pass has gone on to another walk keeps what leaves the walk.
  const auto [pass, state, scope] = step.rows[handle.row];
  const bool is_here =
      pass.handle == handle && pass.walk == static_cast<std::int16_t>(step.walk.id);
  if (is_here ? state.done : outputs == nullptr) {
    return;
  }
  const walk::CompiledNode& compiled = step.walk.nodes[step.node];
  const Cursor cursor = cursor_of(step.walk, handle);
  for (std::uint16_t index = compiled.outputs.begin; index < compiled.outputs.end; ++index) {
    const walk::Output& output = step.walk.outputs[index];
    const TensorList* tensors = outputs == nullptr ? nullptr : outputs->find(output.signal);
    emit(cursor, is_here, output, tensors == nullptr ? kNoTensors : *tensors, routed);
  }
  if (is_here) {
    cursor.nodes[step.node].done = true;
    finish_child(cursor, compiled.scope, routed);
  }
}

/// The steady step of a loop that feeds itself, without the general machinery, which does the same. False, with nothing done,
/// where the lane is anything else.
inline bool WalkRuntime::loop_on(WalkPasses::NodeRow row, WalkId walk, InputMask refilled,
                                 InputMask self_fed, RequestHandle handle) {
  const auto [pass, state, loop] = row;
  if (pass.handle != handle || pass.walk != static_cast<std::int16_t>(walk) || pass.num_left > 0 ||
      state.done || state.num_in_flight == 0 || state.num_discarded > 0 ||
      (state.next | state.current_tensors) != 0 || loop.stopping ||
      loop.iteration + 1 >= loop.max_iters) {
    return false;
  }
  ++loop.iteration;
  --state.num_in_flight;
  state.taken = false;
  state.current = (state.current & ~refilled) | self_fed;
  state.ahead -= state.ahead > 0 ? 1 : 0;
  return true;
}

void WalkRuntime::land_and_route(WalkNode node, std::span<const RequestHandle> handles,
                                 std::vector<std::uint32_t>& wasted, RouteOutput& routed) {
  wasted.clear();
  routed.clear();
  const Completion step = completion_of(node);
  const WalkPasses::NodeRows rows = step.rows;
  const InputMask refilled = step.refilled;
  const std::optional<InputMask> self_fed = step.self_fed;
  const std::int32_t num_rows = num_rows_;
  for (std::size_t lane = 0; lane < handles.size(); ++lane) {
    const RequestHandle handle = handles[lane];
    check_row(handle, num_rows);
    const WalkPasses::NodeRow row = rows[handle.row];
    if (self_fed && loop_on(row, node.walk, refilled, *self_fed, handle)) {
      if (row.node.num_in_flight == 0) {
        refresh_ready(cursor_of(step.walk, handle), step.node);  // with a step in flight it is not
      }
      continue;
    }
    if (land_lane(step, handle)) {
      route_lane(step, handle, nullptr, routed);
    } else {
      wasted.push_back(static_cast<std::uint32_t>(lane));
    }
  }
}

}  // namespace rigel
