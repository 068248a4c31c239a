// The edges of a walk: where each goes, and what that means for the inputs they fill.

#include "model/walk/walk_compiler.h"

#include <fmt/core.h>

#include <algorithm>

namespace rigel::walk {

namespace {

std::string edge_name(const Edge& edge) {
  return fmt::format("edge '{}' to '{}'", edge.signal, edge.next_node);
}

}  // namespace

void WalkCompiler::emit(const Emitter& emitter, const std::vector<Edge>& edges, Range& outputs) {
  outputs.begin = static_cast<std::uint16_t>(walk_.outputs.size());
  std::vector<std::string> emitted;
  for (const Edge& edge : edges) {
    if (edge.signal.empty()) {
      fail(emitter.what, fmt::format("an edge to '{}' has no signal", edge.next_node));
    }
    if (std::ranges::count(emitted, edge.signal) > 0) {
      continue;  // its targets stand behind the first edge of the signal
    }
    emitted.push_back(edge.signal);
    Output output{.signal = names_.signals.intern(edge.signal)};
    output.targets.begin = static_cast<std::uint16_t>(walk_.targets.size());
    for (const Edge& other : edges) {
      if (other.signal == edge.signal) {
        walk_.targets.push_back(target_of(emitter, other));
        output.counts_new_tokens = output.counts_new_tokens || other.counts_new_tokens;
      }
    }
    output.targets.end = static_cast<std::uint16_t>(walk_.targets.size());
    walk_.outputs.push_back(output);
  }
  outputs.end = static_cast<std::uint16_t>(walk_.outputs.size());
}

Target WalkCompiler::target_of(const Emitter& emitter, const Edge& edge) {
  const std::string where = fmt::format("{}, {}", emitter.what, edge_name(edge));
  if (edge.is_streaming) {
    return stream_target(emitter, edge);
  }
  Target target{.persist = edge.persist, .modality = edge.modality};
  if (edge.next_node == kEmitToClient || edge.next_node == kNowhere) {
    target.kind = edge.next_node == kNowhere ? Target::Kind::kDropped : Target::Kind::kClient;
    return target;
  }
  const std::optional<NodeId> id = names_.nodes.find(edge.next_node);
  const std::optional<std::uint16_t> node = id ? walk_.find(*id) : std::nullopt;
  if (!node) {
    fail(where,
         "this walk has no such node; name one of its nodes, 'emit_to_client' or '' (nowhere), or "
         "mark "
         "the edge is_streaming if the node is in another partition");
  }
  const std::string& name = edge.input.empty() ? edge.signal : edge.input;
  const std::optional<int> input = walk_.input_of(*node, names_.signals.intern(name));
  if (!input) {
    fail(where, fmt::format("node '{}' has no input '{}'; add it there or set the edge's `input`",
                            edge.next_node, name));
  }
  if ((walk_.nodes[*node].streaming >> *input & 1) != 0) {
    fail(where, fmt::format("input '{}' comes out of a stream; mark the edge is_streaming or the "
                            "input not",
                            name));
  }
  target.kind = direction(emitter, edge, *node);
  target.node = *node;
  target.input = static_cast<std::uint8_t>(*input);
  producers_[static_cast<std::size_t>(walk_.nodes[*node].first_input + *input)].push_back(
      {target.kind, walk_.scopes[emitter.scope].depth});
  if (target.kind == Target::Kind::kForward) {
    for (std::uint16_t source = emitter.first_node; source < emitter.end_node; ++source) {
      forward_.emplace_back(source, *node);
    }
  }
  return target;
}

Target WalkCompiler::stream_target(const Emitter& emitter, const Edge& edge) const {
  const std::string where = fmt::format("{}, {}", emitter.what, edge_name(edge));
  const std::string& input = edge.input.empty() ? edge.signal : edge.input;
  for (std::size_t index = 0; index < streams_.size(); ++index) {
    const Stream& stream = streams_[index];
    if (stream.from == walk_.partition &&
        names_.partitions.name(stream.to) == edge.target_partition &&
        names_.signals.name(stream.signal) == edge.signal &&
        names_.nodes.name(stream.consumer) == edge.next_node &&
        names_.signals.name(stream.input) == input) {
      return {.kind = Target::Kind::kStream,
              .persist = edge.persist,
              .stream = static_cast<StreamId>(index)};
    }
  }
  fail(where,
       fmt::format("no connection carries '{}' from partition '{}' to '{}'; add a "
                   "walk::Connection or correct target_partition",
                   edge.signal, names_.partitions.name(walk_.partition), edge.target_partition));
}

Target::Kind WalkCompiler::direction(const Emitter& emitter, const Edge& edge,
                                     std::uint16_t target) const {
  const std::string where = fmt::format("{}, {}", emitter.what, edge_name(edge));
  const Scope& scope = walk_.scopes[emitter.scope];
  if (target < scope.nodes.begin || target >= scope.nodes.end) {
    fail(where, fmt::format("it leaves loop '{}' in every iteration; make it one of the loop's "
                            "outputs or accumulated_outputs",
                            loops_[emitter.scope]->name));
  }
  const Path& from = *emitter.path;
  const Path& to = node_paths_[target];
  std::size_t level = 0;
  while (level < from.size() && level < to.size() && from[level].child == to[level].child) {
    ++level;
  }
  // A node that feeds itself, or a loop whose output goes back into it.
  const bool is_backward =
      level == from.size() || (from[level].ordered && from[level].child > to[level].child);
  if (!is_backward) {
    return Target::Kind::kForward;
  }
  if (emitter.scope == 0) {
    fail(where,
         "it goes backward and no loop is around both ends; put both into a Loop or "
         "reorder the sections");
  }
  return Target::Kind::kLoopBack;
}

void WalkCompiler::emit_loop(std::uint16_t scope) {
  const Loop& loop = *loops_[scope];
  for (const Edge& edge : loop.outputs) {
    if (std::ranges::count(loop.accumulated_outputs, edge.signal, &Edge::signal) > 0) {
      fail(fmt::format("loop '{}', {}", loop.name, edge_name(edge)),
           "the signal is among outputs and accumulated_outputs; keep one");
    }
  }
  std::vector<Edge> edges = loop.outputs;
  edges.insert(edges.end(), loop.accumulated_outputs.begin(), loop.accumulated_outputs.end());
  for (const Edge& edge : edges) {
    if (edge.is_streaming) {
      fail(fmt::format("loop '{}', {}", loop.name, edge_name(edge)),
           "a stream takes each iteration's value; make it an edge of the node inside");
    }
  }
  Range outputs;
  emit(emitter_of_loop(scope), edges, outputs);
  walk_.scopes[scope].outputs = outputs;
}

void WalkCompiler::remember_outputs(std::uint16_t scope) {
  Scope& compiled = walk_.scopes[scope];
  const Loop& loop = *loops_[scope];
  compiled.cells.begin = static_cast<std::uint16_t>(walk_.cell_accumulates.size());
  for (std::uint16_t index = compiled.outputs.begin; index < compiled.outputs.end; ++index) {
    const auto cell = static_cast<std::int16_t>(walk_.cell_accumulates.size());
    walk_.outputs[index].cell = cell;
    output_inside(scope, walk_.outputs[index].signal).remembered_in = cell;
    const std::string& signal = names_.signals.name(walk_.outputs[index].signal);
    walk_.cell_accumulates.push_back(
        std::ranges::count(loop.accumulated_outputs, signal, &Edge::signal) > 0);
  }
  compiled.cells.end = static_cast<std::uint16_t>(walk_.cell_accumulates.size());
}

Output& WalkCompiler::output_inside(std::uint16_t scope, SignalId signal) {
  Output* found = nullptr;
  int num_found = 0;
  const auto look_in = [&](Range outputs) {
    for (std::uint16_t index = outputs.begin; index < outputs.end; ++index) {
      if (walk_.outputs[index].signal == signal) {
        found = &walk_.outputs[index];
        ++num_found;
      }
    }
  };
  for (const CompiledNode& node : walk_.nodes) {
    if (node.scope == scope) {
      look_in(node.outputs);
    }
  }
  for (std::uint16_t inner = 1; inner < walk_.scopes.size(); ++inner) {
    if (walk_.scopes[inner].parent == scope) {
      look_in(walk_.scopes[inner].outputs);
    }
  }
  if (num_found != 1) {
    fail(fmt::format("loop '{}'", loops_[scope]->name),
         fmt::format("{} of its nodes and loops give its output '{}'; exactly one must (give an "
                     "inner output that only leaves the loop an edge to nowhere)",
                     num_found, names_.signals.name(signal)));
  }
  return *found;
}

}  // namespace rigel::walk
