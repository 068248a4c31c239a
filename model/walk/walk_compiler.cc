// A walk's sections are numbered; walk_edges.cc then follows their edges.

#include "model/walk/walk_compiler.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

namespace rigel::walk {

namespace {

constexpr int kMaxNodes = 1024;

}  // namespace

WalkCompiler::WalkCompiler(const Walk& definition, Names& names, PartitionId partition,
                           const std::vector<Stream>& streams)
    : definition_(definition), names_(names), streams_(streams) {
  walk_.id = names.walks.intern(definition.name);
  walk_.partition = partition;
  walk_.index_of_node.assign(names.nodes.size(), -1);
  walk_.scope_of_loop.assign(names.loops.size(), -1);
}

CompiledWalk WalkCompiler::compile() {
  walk_.scopes.emplace_back();
  loops_.push_back(nullptr);
  scope_paths_.emplace_back();
  number(definition_.body, 0, {});
  walk_.scopes[0].nodes.end = static_cast<std::uint16_t>(walk_.nodes.size());
  walk_.scopes[0].scopes.end = static_cast<std::uint16_t>(walk_.scopes.size());
  if (walk_.scopes.size() > LoopCounters::kMaxLoops + 1) {
    fail("", fmt::format("it has {} loops, and a request counts at most {}; split the walk",
                         walk_.scopes.size() - 1, LoopCounters::kMaxLoops));
  }
  producers_.resize(walk_.inputs.size());
  for (std::uint16_t node = 0; node < walk_.nodes.size(); ++node) {
    emit(emitter_of_node(node), nodes_[node]->outputs, walk_.nodes[node].outputs);
  }
  for (auto scope = static_cast<std::uint16_t>(walk_.scopes.size() - 1); scope > 0; --scope) {
    emit_loop(scope);
  }
  for (std::uint16_t scope = 1; scope < walk_.scopes.size(); ++scope) {
    remember_outputs(scope);
  }
  check_no_cycle();
  classify_inputs();
  find_successors();
  return std::move(walk_);
}

void WalkCompiler::number(const Section& section, std::uint16_t scope, const Path& path) {
  if (const auto* node = std::get_if<Node>(&section)) {
    add_node(*node, scope, path);
  } else if (const auto* loop = std::get_if<Loop>(&section)) {
    add_loop(*loop, scope, path);
  } else if (const auto* sequential = std::get_if<Sequential>(&section)) {
    number_children(sequential->sections, scope, path, /*ordered=*/true);
  } else {
    number_children(std::get<Parallel>(section).sections, scope, path, /*ordered=*/false);
  }
}

void WalkCompiler::number_children(const std::vector<Section>& sections, std::uint16_t scope,
                                   const Path& path, bool ordered) {
  if (sections.empty()) {
    fail("", "a section without sections; leave it out or put a node into it");
  }
  for (std::size_t child = 0; child < sections.size(); ++child) {
    Path child_path = path;
    child_path.push_back({static_cast<int>(child), ordered});
    number(sections[child], scope, child_path);
  }
}

void WalkCompiler::add_node(const Node& node, std::uint16_t scope, const Path& path) {
  const std::string where = fmt::format("node '{}'", node.name);
  if (node.name.empty() || node.name == kEmitToClient) {
    fail(where, "a node needs a name of its own");
  }
  const auto id = static_cast<std::size_t>(names_.nodes.intern(node.name));
  if (walk_.index_of_node[id] >= 0) {
    fail(where, "it stands twice in this walk; give the second one another name");
  }
  if (walk_.nodes.size() >= kMaxNodes) {
    fail(where, fmt::format("a walk has at most {} nodes", kMaxNodes));
  }
  if (node.inputs.empty() || node.inputs.size() > kMaxInputs) {
    fail(where, fmt::format("it has {} inputs; 1 to {} are possible, since a node without inputs "
                            "would always be ready",
                            node.inputs.size(), kMaxInputs));
  }
  CompiledNode compiled{.id = static_cast<NodeId>(id),
                        .scope = scope,
                        .first_input = static_cast<std::uint16_t>(walk_.inputs.size()),
                        .enable_async_scheduling = node.enable_async_scheduling};
  for (std::size_t input = 0; input < node.inputs.size(); ++input) {
    const SignalId signal = names_.signals.intern(node.inputs[input]);
    if (std::ranges::count(node.inputs, node.inputs[input]) > 1) {
      fail(where, fmt::format("input '{}' stands twice", node.inputs[input]));
    }
    walk_.inputs.push_back(signal);
    compiled.required |= InputMask{1} << input;
    if (std::ranges::count(node.streaming_inputs, node.inputs[input]) > 0) {
      compiled.streaming |= InputMask{1} << input;
    }
  }
  for (const std::string& streaming : node.streaming_inputs) {
    if (std::ranges::count(node.inputs, streaming) == 0) {
      fail(where,
           fmt::format("streaming input '{}' is not among its inputs; add it there", streaming));
    }
  }
  walk_.index_of_node[id] = static_cast<std::int16_t>(walk_.nodes.size());
  walk_.nodes.push_back(compiled);
  nodes_.push_back(&node);
  node_paths_.push_back(path);
  ++walk_.scopes[scope].num_children;
}

void WalkCompiler::add_loop(const Loop& loop, std::uint16_t parent, const Path& path) {
  const std::string where = fmt::format("loop '{}'", loop.name);
  if (loop.name.empty()) {
    fail(where, "a loop needs a name, by which it is stopped and counted");
  }
  if (loop.max_iters < 0) {
    fail(where,
         fmt::format("max_iters is {}; it must be positive, or Loop::kUnbounded", loop.max_iters));
  }
  const LoopId id = names_.loops.intern(loop.name);
  walk_.scope_of_loop.resize(std::max(walk_.scope_of_loop.size(), names_.loops.size()), -1);
  if (walk_.find(id)) {
    fail(where, "it stands twice in this walk; give the second one another name");
  }
  const int depth = walk_.scopes[parent].depth + 1;
  if (depth >= kMaxDepth) {
    fail(where, fmt::format("it is nested {} deep; at most {} loops (LoopCounters::kMaxLoops) may "
                            "enclose each other",
                            depth, LoopCounters::kMaxLoops));
  }
  const auto scope = static_cast<std::uint16_t>(walk_.scopes.size());
  ++walk_.scopes[parent].num_children;
  walk_.scope_of_loop[static_cast<std::size_t>(id)] = static_cast<std::int16_t>(scope);
  walk_.scopes.push_back({.loop = id,
                          .parent = parent,
                          .depth = static_cast<std::uint16_t>(depth),
                          .max_iters = loop.max_iters == Loop::kUnbounded
                                           ? std::numeric_limits<std::int32_t>::max()
                                           : loop.max_iters});
  loops_.push_back(&loop);
  scope_paths_.push_back(path);
  const auto first_node = static_cast<std::uint16_t>(walk_.nodes.size());
  number_children(loop.sections, scope, path, /*ordered=*/true);
  Scope& compiled = walk_.scopes[scope];
  compiled.nodes = {first_node, static_cast<std::uint16_t>(walk_.nodes.size())};
  compiled.scopes = {scope, static_cast<std::uint16_t>(walk_.scopes.size())};
}

WalkCompiler::Emitter WalkCompiler::emitter_of_node(std::uint16_t node) const {
  return {.what = fmt::format("node '{}'", node_name(node)),
          .path = &node_paths_[node],
          .scope = walk_.nodes[node].scope,
          .first_node = node,
          .end_node = static_cast<std::uint16_t>(node + 1)};
}

WalkCompiler::Emitter WalkCompiler::emitter_of_loop(std::uint16_t scope) const {
  return {.what = fmt::format("loop '{}'", loops_[scope]->name),
          .path = &scope_paths_[scope],
          .scope = walk_.scopes[scope].parent,
          .first_node = walk_.scopes[scope].nodes.begin,
          .end_node = walk_.scopes[scope].nodes.end};
}

std::string WalkCompiler::node_name(std::uint16_t node) const {
  return nodes_[node]->name;
}

void WalkCompiler::fail(std::string_view where, const std::string& message) const {
  throw DefinitionError(where.empty()
                            ? fmt::format("walk '{}': {}", definition_.name, message)
                            : fmt::format("walk '{}', {}: {}", definition_.name, where, message));
}

}  // namespace rigel::walk
