// What the edges of a walk mean for its inputs: how long a value stays, and who can run ahead on it.

#include "model/walk/walk_compiler.h"

#include <fmt/core.h>

#include <algorithm>

namespace rigel::walk {

void WalkCompiler::classify_inputs() {
  for (std::uint16_t node = 0; node < walk_.nodes.size(); ++node) {
    for (int input = 0; input < walk_.nodes[node].num_inputs(); ++input) {
      classify_input(node, input);
    }
  }
}

void WalkCompiler::classify_input(std::uint16_t node, int input) {
  CompiledNode& compiled = walk_.nodes[node];
  const std::uint16_t own_depth = walk_.scopes[compiled.scope].depth;
  const std::string where = fmt::format("node '{}', input '{}'", node_name(node),
                                        names_.signals.name(walk_.input_name(node, input)));
  const InputMask bit = InputMask{1} << input;
  // External to every loop unless something inside one makes it.
  std::uint16_t refill_depth = (compiled.streaming & bit) != 0 ? own_depth : std::uint16_t{0};
  int forward_depth = -1;
  int loop_back_depth = -1;
  for (const Producer& producer :
       producers_[static_cast<std::size_t>(compiled.first_input + input)]) {
    int& depth = producer.kind == Target::Kind::kForward ? forward_depth : loop_back_depth;
    if (depth >= 0) {
      fail(where, producer.kind == Target::Kind::kForward
                      ? "two edges of one iteration fill it; give each an input of its own"
                      : "two loop-backs fill it; give each an input of its own");
    }
    depth = producer.depth;
    refill_depth = std::max(refill_depth, producer.depth);
  }
  if (loop_back_depth >= 0 && forward_depth >= loop_back_depth) {
    fail(where,
         "an edge and a loop-back fill it in every iteration; only a first value may come "
         "from outside the loop");
  }
  const int promote_depth = loop_back_depth >= 0 ? loop_back_depth : own_depth;
  for (std::size_t depth = 0; depth <= own_depth; ++depth) {
    const int at = static_cast<int>(depth);
    compiled.refilled[depth] |= refill_depth >= at ? bit : InputMask{0};
    compiled.promoted[depth] |= promote_depth >= at ? bit : InputMask{0};
    compiled.loop_back[depth] |= loop_back_depth >= at ? bit : InputMask{0};
  }
}

void WalkCompiler::find_successors() {
  walk_.successors_of.resize(walk_.nodes.size());
  for (std::uint16_t source = 0; source < walk_.nodes.size(); ++source) {
    Range& range = walk_.successors_of[source];
    range.begin = static_cast<std::uint16_t>(walk_.successors.size());
    for (std::uint16_t target = 0; target < walk_.nodes.size(); ++target) {
      Successor successor{.target = target};
      successor.consumed.begin = static_cast<std::uint16_t>(walk_.consumed.size());
      const Range outputs = walk_.nodes[source].outputs;
      for (std::uint16_t index = outputs.begin; index < outputs.end; ++index) {
        const Output& output = walk_.outputs[index];
        for (std::uint16_t edge = output.targets.begin; edge < output.targets.end; ++edge) {
          const Target& to = walk_.targets[edge];
          const bool is_loop_back = to.kind == Target::Kind::kLoopBack;
          if ((!is_loop_back && to.kind != Target::Kind::kForward) || to.node != target) {
            continue;
          }
          successor.is_new_iteration = is_loop_back;
          successor.fed |= InputMask{1} << to.input;
          walk_.consumed.push_back({output.signal, walk_.input_name(target, to.input)});
        }
      }
      successor.consumed.end = static_cast<std::uint16_t>(walk_.consumed.size());
      // A new iteration that begins inside another loop would begin that one, too: nobody runs ahead of both.
      const bool crosses_loops =
          successor.is_new_iteration && walk_.nodes[source].scope != walk_.nodes[target].scope;
      if (successor.fed != 0 && !crosses_loops && walk_.nodes[source].enable_async_scheduling &&
          walk_.nodes[target].enable_async_scheduling) {
        walk_.successors.push_back(successor);
      }
    }
    range.end = static_cast<std::uint16_t>(walk_.successors.size());
  }
}

void WalkCompiler::check_no_cycle() const {
  std::vector<int> num_open(walk_.nodes.size());
  for (const auto& [from, to] : forward_) {
    ++num_open[to];
  }
  std::vector<std::uint16_t> free;
  for (std::uint16_t node = 0; node < num_open.size(); ++node) {
    if (num_open[node] == 0) {
      free.push_back(node);
    }
  }
  for (std::size_t next = 0; next < free.size(); ++next) {
    for (const auto& [from, to] : forward_) {
      if (from == free[next] && --num_open[to] == 0) {
        free.push_back(to);
      }
    }
  }
  const auto waiting = std::ranges::find_if(num_open, [](int open) { return open > 0; });
  if (waiting != num_open.end()) {
    fail(
        fmt::format("node '{}'", node_name(static_cast<std::uint16_t>(waiting - num_open.begin()))),
        "it waits for its own output in a cycle of edges of one iteration; put the sections into "
        "a Sequential inside a Loop");
  }
}

}  // namespace rigel::walk
