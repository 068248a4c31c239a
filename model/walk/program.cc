#include "model/walk/program.h"

#include <algorithm>

namespace rigel::walk {

namespace {

template <class Id>
std::optional<std::uint16_t> entry_of(const std::vector<std::int16_t>& table, Id id) {
  const auto index = static_cast<std::size_t>(id);
  if (index >= table.size() || table[index] < 0) {
    return std::nullopt;
  }
  return static_cast<std::uint16_t>(table[index]);
}

}  // namespace

std::optional<std::uint16_t> CompiledWalk::find(NodeId node) const {
  return entry_of(index_of_node, node);
}

std::optional<std::uint16_t> CompiledWalk::find(LoopId loop) const {
  return entry_of(scope_of_loop, loop);
}

std::optional<int> CompiledWalk::input_of(std::uint16_t node, SignalId input) const {
  for (int index = 0; index < nodes[node].num_inputs(); ++index) {
    if (input_name(node, index) == input) {
      return index;
    }
  }
  return std::nullopt;
}

bool Stream::finite() const {
  const auto* fixed = std::get_if<FixedChunks>(&chunks);
  return fixed == nullptr || !fixed->continue_after_producer_done;
}

std::optional<LoopId> Program::innermost_loop(WalkId walk_id, NodeId node) const {
  const CompiledWalk& compiled = walk(walk_id);
  const std::optional<std::uint16_t> index = compiled.find(node);
  if (!index || compiled.nodes[*index].scope == 0) {
    return std::nullopt;
  }
  return compiled.scopes[compiled.nodes[*index].scope].loop;
}

}  // namespace rigel::walk
