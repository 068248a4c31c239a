// Where a step's outputs go, and what that does to the loops around its node.

#include "tensor/error.h"
#include "worker/walk_runtime.h"

#include <bit>
#include <optional>
#include <utility>

namespace rigel {

using walk::InputMask;
using walk::Target;

namespace {

std::int64_t num_elements_of(const TensorList& tensors) {
  std::int64_t num_elements = 0;
  for (const Tensor& tensor : tensors) {
    num_elements += tensor.num_elements();
  }
  return num_elements;
}

}  // namespace

void WalkRuntime::stop_loops(WalkNode node, std::span<const LoopStop> stops,
                             std::vector<LoopStop>& stopped) {
  stopped.clear();
  const walk::CompiledWalk& walk = walk_of(node.walk);
  for (const LoopStop& stop : stops) {
    const std::optional<std::uint16_t> scope = walk.find(stop.loop);
    if (!scope || live_pass(walk, stop.handle) == nullptr) {
      continue;
    }
    WalkScopeState& state = passes_of(walk).scopes(stop.handle.row)[*scope];
    if (!state.done && !state.stopping) {
      state.stopping = true;
      stopped.push_back(stop);
    }
  }
}

LoopTime WalkRuntime::loop_time(RequestHandle handle, WalkId walk, LoopId loop) const {
  const walk::CompiledWalk& compiled = walk_of(walk);
  const Cursor cursor = at(compiled, handle);
  LoopTime time{.handle = handle, .loop = loop, .pass = live_pass(compiled, handle)->number};
  std::uint16_t scope = scope_of(compiled, loop);
  time.depth = compiled.scopes[scope].depth;
  for (; scope != 0; scope = compiled.scopes[scope].parent) {
    time.iterations[compiled.scopes[scope].depth] = cursor.scopes[scope].iteration;
  }
  return time;
}

bool WalkRuntime::stop_loop_at(const LoopTime& time, WalkId walk) {
  const walk::CompiledWalk& compiled = walk_of(walk);
  const std::optional<std::uint16_t> scope = compiled.find(time.loop);
  if (!scope || live_pass(compiled, time.handle) == nullptr) {
    return false;
  }
  // The loops around it tell one activation from another; its own iteration does not.
  const LoopTime now = loop_time(time.handle, walk, time.loop);
  bool is_same = now.pass == time.pass;
  for (int depth = 1; depth < now.depth; ++depth) {
    is_same = is_same && now.iterations[static_cast<std::size_t>(depth)] ==
                             time.iterations[static_cast<std::size_t>(depth)];
  }
  WalkScopeState& state = passes_of(compiled).scopes(time.handle.row)[*scope];
  if (!is_same || state.done || state.stopping) {
    return false;
  }
  state.stopping = true;
  return true;
}

void WalkRuntime::emit(const Cursor& cursor, bool is_here, const walk::Output& output,
                       const TensorList& tensors, RouteOutput& routed) {
  const RequestHandle handle = cursor.handle;
  for (std::uint16_t index = output.targets.begin; index < output.targets.end; ++index) {
    const Target& target = cursor.walk.targets[index];
    if (target.kind == Target::Kind::kForward && is_here) {
      put_current(cursor, target.node, target.input, tensors);
      refresh_ready(cursor, target.node);
    } else if (target.kind == Target::Kind::kLoopBack && is_here) {
      put_next(cursor, target.node, target.input, tensors);
    }
    if (tensors.empty()) {
      continue;
    }
    if (target.kind == Target::Kind::kClient) {
      routed.to_client.push_back({handle, output.signal, target.modality, tensors});
    } else if (target.kind == Target::Kind::kStream) {
      routed.to_stream.push_back({handle, target.stream, tensors});
    }
    if (target.persist) {
      routed.to_persist.push_back({handle, output.signal, tensors});
    }
  }
  if (output.counts_new_tokens && !tensors.empty()) {
    routed.new_tokens.push_back({handle, num_elements_of(tensors)});
  }
  if (output.remembered_in >= 0 && is_here && !tensors.empty()) {
    const auto cell = static_cast<std::size_t>(output.remembered_in);
    TensorList& remembered = cursor.passes.cell(handle.row, cell);
    if (!cursor.walk.cell_accumulates[cell]) {
      remembered.clear();
    }
    remembered.insert(remembered.end(), tensors.begin(), tensors.end());
  }
}

void WalkRuntime::finish_child(const Cursor& cursor, std::uint16_t scope, RouteOutput& routed) {
  WalkScopeState& state = cursor.scopes[scope];
  if (++state.num_done < cursor.walk.scopes[scope].num_children) {
    return;
  }
  if (scope == 0) {
    state.done = true;
    routed.finished_walks.push_back(cursor.handle);
  } else if (state.stopping || state.iteration + 1 >= state.max_iters) {
    end_loop(cursor, scope, routed);
  } else {
    advance_loop(cursor, scope);
  }
}

void WalkRuntime::advance_loop(const Cursor& cursor, std::uint16_t scope) {
  const walk::Scope& compiled = cursor.walk.scopes[scope];
  ++cursor.scopes[scope].iteration;
  cursor.scopes[scope].num_done = 0;
  for (auto inner = static_cast<std::uint16_t>(scope + 1); inner < compiled.scopes.end; ++inner) {
    cursor.scopes[inner] = {.max_iters = cursor.scopes[inner].max_iters};
  }
  for (std::uint16_t cell = compiled.cells.begin; cell < compiled.cells.end; ++cell) {
    if (!cursor.walk.cell_accumulates[cell]) {
      cursor.passes.cell(cursor.handle.row, cell).clear();
    }
  }
  for (std::uint16_t node = compiled.nodes.begin; node < compiled.nodes.end; ++node) {
    const walk::CompiledNode& inside = cursor.walk.nodes[node];
    WalkNodeState& state = cursor.nodes[node];
    const InputMask promoted = state.next & inside.promoted[compiled.depth];
    release_current(cursor, node, inside.refilled[compiled.depth] | promoted);
    for (InputMask rest = promoted & state.next_tensors; rest != 0; rest &= rest - 1) {
      const auto slot = static_cast<std::size_t>(inside.first_input + std::countr_zero(rest));
      std::swap(cursor.passes.current(cursor.handle.row, slot),
                cursor.passes.next(cursor.handle.row, slot));
    }
    state.current |= promoted;
    state.current_tensors |= promoted & state.next_tensors;
    state.next &= ~promoted;
    state.next_tensors &= ~promoted;
    state.done = false;
    // The step that ran ahead of this iteration now runs in it.
    state.ahead -= inside.scope == scope && state.ahead > 0 ? 1 : 0;
    refresh_ready(cursor, node);
  }
}

void WalkRuntime::end_loop(const Cursor& cursor, std::uint16_t scope, RouteOutput& routed) {
  const walk::Scope& compiled = cursor.walk.scopes[scope];
  cursor.scopes[scope].done = true;
  cursor.scopes[scope].stopping = false;
  routed.ended_loops.emplace_back(cursor.handle, compiled.loop);
  for (std::uint16_t node = compiled.nodes.begin; node < compiled.nodes.end; ++node) {
    const walk::CompiledNode& inside = cursor.walk.nodes[node];
    WalkNodeState& state = cursor.nodes[node];
    // Chunks here are those of steps ahead, which are worthless now.
    release_next(cursor, node, inside.loop_back[compiled.depth] | inside.streaming);
    // What the enclosing scope's next iteration makes anew; the rest stays for it.
    release_current(cursor, node, inside.refilled[static_cast<std::size_t>(compiled.depth - 1)]);
    state.num_discarded = static_cast<std::uint8_t>(state.num_discarded + state.ahead);
    state.ahead = 0;
  }
  for (std::uint16_t index = compiled.outputs.begin; index < compiled.outputs.end; ++index) {
    const walk::Output& output = cursor.walk.outputs[index];
    TensorList& remembered =
        cursor.passes.cell(cursor.handle.row, static_cast<std::size_t>(output.cell));
    emit(cursor, /*is_here=*/true, output, remembered, routed);
    remembered.clear();
  }
  finish_child(cursor, compiled.parent, routed);
}

}  // namespace rigel
