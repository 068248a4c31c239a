// Requests and their walks; which nodes could run. Inputs, speculation, and routing have files of their own.

#include "worker/walk_runtime.h"

#include "tensor/error.h"

#include <algorithm>

namespace rigel {

void RouteOutput::clear() {
  to_client.clear();
  to_stream.clear();
  to_persist.clear();
  new_tokens.clear();
  ended_loops.clear();
  finished_walks.clear();
}

WalkRuntime::WalkRuntime(const walk::Program& program, std::int32_t num_rows)
    : program_(program),
      num_rows_(num_rows),
      partition_of_node_(program.names.nodes.size(), -1),
      first_offer_(static_cast<std::size_t>(num_rows), -1) {
  for (const walk::CompiledPartition& partition : program.partitions) {
    passes_.emplace_back(program, partition, num_rows);
  }
  for (const walk::CompiledWalk& walk : program.walks) {
    first_ready_.push_back(static_cast<std::uint32_t>(ready_.size()));
    for (const walk::CompiledNode& node : walk.nodes) {
      ready_.emplace_back(num_rows);
      partition_of_node_[static_cast<std::size_t>(node.id)] =
          static_cast<std::int16_t>(walk.partition);
    }
  }
}

const walk::CompiledWalk& WalkRuntime::walk_of(WalkId id) const {
  const auto index = static_cast<std::size_t>(id);
  RIGEL_CHECK(index < program_.walks.size() && !program_.walks[index].nodes.empty(),
              "there is no walk {}", index);
  return program_.walks[index];
}

std::uint16_t WalkRuntime::node_of(const walk::CompiledWalk& walk, NodeId node) {
  const std::optional<std::uint16_t> index = walk.find(node);
  RIGEL_CHECK(index.has_value(), "walk {} has no node {}", static_cast<int>(walk.id),
              static_cast<int>(node));
  return *index;
}

std::uint16_t WalkRuntime::scope_of(const walk::CompiledWalk& walk, LoopId loop) {
  const std::optional<std::uint16_t> scope = walk.find(loop);
  RIGEL_CHECK(scope.has_value(), "walk {} has no loop {}", static_cast<int>(walk.id),
              static_cast<int>(loop));
  return *scope;
}

WalkRuntime::Cursor WalkRuntime::at(const walk::CompiledWalk& walk, RequestHandle handle) const {
  RIGEL_CHECK(live_pass(walk, handle) != nullptr, "row {} of generation {} is not in walk {}",
              handle.row, handle.generation, static_cast<int>(walk.id));
  return cursor_of(walk, handle);
}

void WalkRuntime::refresh_ready(const Cursor& cursor, std::uint16_t node) const {
  const WalkNodeState& state = cursor.nodes[node];
  const bool ready = state.current == cursor.walk.nodes[node].required && !state.done &&
                     !state.taken && state.num_in_flight == state.num_discarded;
  if (ready) {
    ready_set(cursor.walk, node).insert(cursor.handle.row);
  } else {
    ready_set(cursor.walk, node).erase(cursor.handle.row);
  }
}

void WalkRuntime::add_request(RequestHandle handle, PartitionId partition, WalkId walk) {
  const walk::CompiledWalk& compiled = walk_of(walk);
  RIGEL_CHECK(compiled.partition == partition, "walk {} is not of partition {}",
              static_cast<int>(walk), static_cast<int>(partition));
  WalkPasses& passes = passes_of(compiled);
  WalkPass& pass = pass_at(compiled.partition, handle);
  if (pass.handle == handle) {
    return;
  }
  RIGEL_CHECK(pass.handle.is_padding(), "row {} still belongs to another request", handle.row);
  pass = {.handle = handle};
  reset_pass(pass, passes, static_cast<std::int16_t>(walk));
}

/// Empties the old walk's slots and begins the new one (-1: none).
void WalkRuntime::reset_pass(WalkPass& pass, WalkPasses& passes, std::int16_t walk) {
  const std::int32_t row = pass.handle.row;
  if (pass.walk >= 0) {
    const walk::CompiledWalk& old = program_.walk(static_cast<WalkId>(pass.walk));
    const Cursor cursor = at(old, pass.handle);
    for (std::uint16_t node = 0; node < old.nodes.size(); ++node) {
      release_current(cursor, node, cursor.nodes[node].current);
      release_next(cursor, node, cursor.nodes[node].next);
      cursor.nodes[node] = {};
      ready_set(old, node).erase(row);
    }
    for (std::size_t cell = 0; cell < old.cell_accumulates.size(); ++cell) {
      passes.cell(row, cell).clear();
    }
  }
  pass.walk = walk;
  ++pass.number;
  if (walk >= 0) {
    const walk::CompiledWalk& compiled = program_.walk(static_cast<WalkId>(walk));
    for (std::size_t scope = 0; scope < compiled.scopes.size(); ++scope) {
      passes.scopes(row)[scope] = {.max_iters = compiled.scopes[scope].max_iters};
    }
  }
}

void WalkRuntime::remove_request(RequestHandle handle) {
  RIGEL_CHECK(contains(handle), "row {} of generation {} is not here", handle.row,
              handle.generation);
  for (WalkPasses& passes : passes_) {
    WalkPass& pass = passes.pass(handle.row);
    if (pass.handle == handle) {
      reset_pass(pass, passes, -1);
      pass = {};
    }
  }
}

bool WalkRuntime::contains(RequestHandle handle) const {
  return handle.row >= 0 && handle.row < num_rows_ &&
         std::ranges::any_of(passes_, [handle](const WalkPasses& passes) {
           return passes.pass(handle.row).handle == handle;
         });
}

void WalkRuntime::set_walk(RequestHandle handle, WalkId walk) {
  const walk::CompiledWalk& compiled = walk_of(walk);
  WalkPasses& passes = passes_of(compiled);
  WalkPass& pass = pass_at(compiled.partition, handle);
  RIGEL_CHECK(pass.handle == handle && pass.walk >= 0,
              "row {} of generation {} is not open in partition {}", handle.row, handle.generation,
              static_cast<int>(compiled.partition));
  int num_in_flight = 0;
  int num_discarded = 0;
  const walk::CompiledWalk& old = program_.walk(static_cast<WalkId>(pass.walk));
  for (std::size_t node = 0; node < old.nodes.size(); ++node) {
    num_in_flight += passes.nodes(handle.row)[node].num_in_flight;
    num_discarded += passes.nodes(handle.row)[node].num_discarded;
  }
  if (num_in_flight > 0) {
    const bool is_waste = passes.scopes(handle.row)[0].done || num_discarded == num_in_flight;
    RIGEL_CHECK(pass.num_left == 0, "row {} left a walk whose steps are still in flight",
                handle.row);
    RIGEL_CHECK(is_waste || pass.walk != static_cast<std::int16_t>(walk),
                "row {} begins walk {} anew while a step of it is in flight", handle.row,
                static_cast<int>(walk));
    pass.left_walk = pass.walk;
    pass.num_left = static_cast<std::uint8_t>(num_in_flight);
    pass.left_is_waste = is_waste;
  }
  reset_pass(pass, passes, static_cast<std::int16_t>(walk));
}

void WalkRuntime::set_loop(RequestHandle handle, WalkId walk, LoopId loop, std::int32_t max_iters,
                           std::int32_t iteration) {
  const walk::CompiledWalk& compiled = walk_of(walk);
  WalkScopeState& state = at(compiled, handle).scopes[scope_of(compiled, loop)];
  RIGEL_CHECK(iteration >= 0 && iteration < max_iters, "iteration {} of {}", iteration, max_iters);
  state.max_iters = max_iters;
  state.iteration = iteration;
}

void WalkRuntime::ready_nodes(const RowSet* exclude, std::optional<WalkNode> target,
                              std::optional<WalkNode> exclude_target, ReadyNodes& ready) const {
  ready.clear();
  for (const walk::CompiledWalk& walk : program_.walks) {
    for (std::uint16_t node = 0; node < walk.nodes.size(); ++node) {
      const RowSet& rows = ready_set(walk, node);
      const WalkNode key{walk.id, walk.nodes[node].id};
      if (rows.empty() || (target && *target != key) ||
          (exclude_target && *exclude_target == key)) {
        continue;
      }
      const auto begin = static_cast<std::uint32_t>(ready.handles.size());
      rows.for_each([&](std::int32_t row) {
        if (exclude == nullptr || !exclude->contains(row)) {
          ready.handles.push_back(passes_of(walk).pass(row).handle);
        }
      });
      if (const auto end = static_cast<std::uint32_t>(ready.handles.size()); end > begin) {
        ready.entries.push_back({key, begin, end});
      }
    }
  }
}

bool WalkRuntime::has_ready_excluding(std::span<const WalkNode> nodes) const {
  for (const walk::CompiledWalk& walk : program_.walks) {
    for (std::uint16_t node = 0; node < walk.nodes.size(); ++node) {
      if (!ready_set(walk, node).empty() &&
          std::ranges::find(nodes, WalkNode{walk.id, walk.nodes[node].id}) == nodes.end()) {
        return true;
      }
    }
  }
  return false;
}

void WalkRuntime::update_loop_counters(WalkId walk, std::span<const RequestHandle> handles,
                                       std::span<RequestInfo* const> infos) const {
  RIGEL_CHECK(handles.size() == infos.size(), "{} handles and {} infos", handles.size(),
              infos.size());
  const walk::CompiledWalk& compiled = walk_of(walk);
  for (std::size_t index = 0; index < handles.size(); ++index) {
    if (live_pass(compiled, handles[index]) == nullptr) {
      continue;
    }
    const WalkScopeState* scopes = passes_of(compiled).scopes(handles[index].row);
    LoopCounters counters;
    for (std::size_t scope = 1; scope < compiled.scopes.size(); ++scope) {
      counters.set(compiled.scopes[scope].loop, scopes[scope].iteration);
    }
    infos[index]->loop_counters = counters;
  }
}

void WalkRuntime::mark_partition_done(RequestHandle handle, PartitionId partition) {
  WalkPass& pass = pass_at(partition, handle);
  RIGEL_CHECK(pass.handle == handle, "row {} of generation {} is not open in partition {}",
              handle.row, handle.generation, static_cast<int>(partition));
  pass.partition_done = true;
}

bool WalkRuntime::is_done(RequestHandle handle) const {
  RIGEL_CHECK(contains(handle), "row {} of generation {} is not here", handle.row,
              handle.generation);
  return std::ranges::all_of(passes_, [handle](const WalkPasses& passes) {
    const WalkPass& pass = passes.pass(handle.row);
    return pass.handle != handle || pass.partition_done;
  });
}

std::size_t WalkRuntime::num_tensors() const {
  std::size_t num_tensors = 0;
  for (const WalkPasses& passes : passes_) {
    num_tensors += passes.num_tensors();
  }
  return num_tensors;
}

}  // namespace rigel
