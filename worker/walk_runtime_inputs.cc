// What arrives at nodes, and what steps take of it.

#include "tensor/error.h"
#include "worker/walk_runtime.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace rigel {

using walk::InputMask;

namespace {

constexpr InputMask bit_of(int input) {
  return InputMask{1} << input;
}

/// Calls `visit(input)` for each bit.
template <class Visit>
void for_each_input(InputMask inputs, const Visit& visit) {
  for (; inputs != 0; inputs &= inputs - 1) {
    visit(std::countr_zero(inputs));
  }
}

}  // namespace

void WalkRuntime::put_current(const Cursor& cursor, std::uint16_t node, int input,
                              const TensorList& tensors) {
  WalkNodeState& state = cursor.nodes[node];
  RIGEL_CHECK((state.current & bit_of(input)) == 0, "input {} of node {} arrives twice (row {})",
              input, node, cursor.handle.row);
  state.current |= bit_of(input);
  if (!tensors.empty()) {
    state.current_tensors |= bit_of(input);
    cursor.passes.current(cursor.handle.row,
                          static_cast<std::size_t>(cursor.walk.nodes[node].first_input + input)) =
        tensors;
  }
}

void WalkRuntime::put_next(const Cursor& cursor, std::uint16_t node, int input,
                           const TensorList& tensors) {
  WalkNodeState& state = cursor.nodes[node];
  RIGEL_CHECK((state.next & bit_of(input)) == 0,
              "input {} of node {} arrives twice for the next iteration (row {})", input, node,
              cursor.handle.row);
  state.next |= bit_of(input);
  if (!tensors.empty()) {
    state.next_tensors |= bit_of(input);
    cursor.passes.next(cursor.handle.row,
                       static_cast<std::size_t>(cursor.walk.nodes[node].first_input + input)) =
        tensors;
  }
}

void WalkRuntime::release_current(const Cursor& cursor, std::uint16_t node, InputMask inputs) {
  WalkNodeState& state = cursor.nodes[node];
  for_each_input(inputs & state.current_tensors, [&](int input) {
    cursor.passes
        .current(cursor.handle.row,
                 static_cast<std::size_t>(cursor.walk.nodes[node].first_input + input))
        .clear();
  });
  state.current &= ~inputs;
  state.current_tensors &= ~inputs;
}

void WalkRuntime::release_next(const Cursor& cursor, std::uint16_t node, InputMask inputs) {
  WalkNodeState& state = cursor.nodes[node];
  for_each_input(inputs & state.next_tensors, [&](int input) {
    cursor.passes
        .next(cursor.handle.row,
              static_cast<std::size_t>(cursor.walk.nodes[node].first_input + input))
        .clear();
  });
  state.next &= ~inputs;
  state.next_tensors &= ~inputs;
}

void WalkRuntime::ingest(std::span<WalkInput> inputs, bool can_buffer, bool is_streaming,
                         std::vector<std::uint32_t>& refused) {
  refused.clear();
  for (std::size_t index = 0; index < inputs.size(); ++index) {
    if (!take_in(inputs[index], can_buffer, is_streaming)) {
      refused.push_back(static_cast<std::uint32_t>(index));
    }
  }
}

bool WalkRuntime::take_in(WalkInput& input, bool can_buffer, bool is_streaming) {
  const auto node_id = static_cast<std::size_t>(input.node);
  RIGEL_CHECK(node_id < partition_of_node_.size() && partition_of_node_[node_id] >= 0,
              "there is no node {}", node_id);
  const auto partition = static_cast<PartitionId>(partition_of_node_[node_id]);
  const WalkPass& pass = pass_at(partition, input.handle);
  RIGEL_CHECK(pass.handle == input.handle, "row {} of generation {} is not open", input.handle.row,
              input.handle.generation);
  const walk::CompiledWalk& walk = program_.walk(static_cast<WalkId>(pass.walk));
  const std::optional<std::uint16_t> node = walk.find(input.node);
  if (!node) {
    return false;  // for a later walk
  }
  const walk::CompiledNode& compiled = walk.nodes[*node];
  const std::optional<int> slot = walk.input_of(*node, input.input);
  RIGEL_CHECK(slot.has_value(), "node {} has no input {}", node_id, static_cast<int>(input.input));
  const InputMask bit = bit_of(*slot);
  RIGEL_CHECK(((compiled.streaming & bit) != 0) == is_streaming,
              "input {} of node {} is {} streaming input", static_cast<int>(input.input), node_id,
              is_streaming ? "no" : "a");

  const Cursor cursor = at(walk, input.handle);
  const WalkNodeState& state = cursor.nodes[*node];
  const bool waits_for_chunks_only =
      (compiled.required & ~compiled.streaming & ~state.current) == 0;
  const bool has_place =
      (state.current & bit) == 0 && !state.done && (!is_streaming || waits_for_chunks_only);
  if (has_place) {
    put_current(cursor, *node, *slot, input.tensors);
    refresh_ready(cursor, *node);
  } else if (can_buffer && !is_streaming && compiled.scope != 0 && (state.next & bit) == 0) {
    put_next(cursor, *node, *slot, input.tensors);
  } else {
    return false;
  }
  input.tensors.clear();
  return true;
}

bool WalkRuntime::pop(WalkNode node, std::span<const RequestHandle> handles, bool check_ready) {
  const walk::CompiledWalk& walk = walk_of(node.walk);
  const std::uint16_t index = node_of(walk, node.node);
  RowSet& ready = ready_set(walk, index);
  for (const RequestHandle handle : handles) {
    if (live_pass(walk, handle) == nullptr || !ready.contains(handle.row)) {
      RIGEL_CHECK(check_ready, "row {} of generation {} is not ready at node {}", handle.row,
                  handle.generation, static_cast<int>(node.node));
      return false;
    }
  }
  for (const RequestHandle handle : handles) {
    WalkNodeState& state = passes_of(walk).nodes(handle.row)[index];
    RIGEL_CHECK(!state.taken, "row {} is popped twice", handle.row);
    state.taken = true;
    ++state.num_in_flight;
    ready.erase(handle.row);
  }
  return true;
}

void WalkRuntime::push_back(WalkNode node, std::span<const RequestHandle> handles) {
  const walk::CompiledWalk& walk = walk_of(node.walk);
  const std::uint16_t index = node_of(walk, node.node);
  for (const RequestHandle handle : handles) {
    const Cursor cursor = at(walk, handle);
    WalkNodeState& state = cursor.nodes[index];
    RIGEL_CHECK(state.taken, "row {} was not popped", handle.row);
    state.taken = false;
    --state.num_in_flight;
    refresh_ready(cursor, index);
  }
}

void WalkRuntime::gather_inputs(WalkNode node, RequestHandle handle, SignalMap& signals) const {
  const walk::CompiledWalk& walk = walk_of(node.walk);
  const std::uint16_t index = node_of(walk, node.node);
  const Cursor cursor = at(walk, handle);
  for_each_input(cursor.nodes[index].current, [&](int input) {
    const auto slot = static_cast<std::size_t>(walk.nodes[index].first_input + input);
    signals[walk.inputs[slot]] = cursor.passes.current(handle.row, slot);
  });
}

void WalkRuntime::set_in_flight(WalkNode node, std::span<const RequestHandle> handles,
                                bool in_flight) {
  const walk::CompiledWalk& walk = walk_of(node.walk);
  const std::uint16_t index = node_of(walk, node.node);
  for (const RequestHandle handle : handles) {
    if (in_flight) {
      const Cursor cursor = at(walk, handle);
      ++cursor.nodes[index].num_in_flight;
      refresh_ready(cursor, index);
      continue;
    }
    WalkPass& pass = pass_at(walk.partition, handle);
    if (pass.handle == handle && pass.num_left > 0 &&
        pass.left_walk == static_cast<std::int16_t>(node.walk)) {
      --pass.num_left;
    } else if (live_pass(walk, handle) != nullptr) {
      const Cursor cursor = at(walk, handle);
      WalkNodeState& state = cursor.nodes[index];
      RIGEL_CHECK(state.num_in_flight > 0, "row {} has no step in flight at node {}", handle.row,
                  static_cast<int>(node.node));
      --state.num_in_flight;
      // A step that ends without having run is the newest.
      state.ahead -= state.ahead > 0 ? 1 : 0;
      state.num_discarded = std::min(state.num_discarded, state.num_in_flight);
      refresh_ready(cursor, index);
    }
  }
}

}  // namespace rigel
