#pragma once

#include "engine/contract/ids.h"
#include "engine/contract/input_metadata.h"
#include "model/walk/definition.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace rigel::walk {

// A definition compiled to flat tables. Nodes, scopes, inputs and outputs of a walk are numbered from 0 in depth-first order,
// so that whatever lies inside a loop is one range. Nothing here changes after load.

enum class StreamId : std::uint8_t {};

/// The names behind the ids. A model that uses constants interns their names first, in order.
struct Names {
  NameTable<NodeId> nodes;
  NameTable<WalkId> walks;
  NameTable<LoopId> loops;
  NameTable<SignalId> signals;
  NameTable<PartitionId> partitions;
};

/// [begin, end) of a table.
struct Range {
  std::uint16_t begin = 0;
  std::uint16_t end = 0;

  [[nodiscard]] bool empty() const { return begin == end; }
};

/// Inputs of one node as bits.
using InputMask = std::uint32_t;
inline constexpr int kMaxInputs = 32;
/// The walk itself is the scope at depth 0; a loop inside `d - 1` others is at depth d.
inline constexpr int kMaxDepth = LoopCounters::kMaxLoops + 1;
inline constexpr int kMaxStreams = 64;

struct Target {
  enum class Kind : std::uint8_t { kForward, kLoopBack, kClient, kDropped, kStream };

  Kind kind = Kind::kDropped;
  bool persist = false;
  Modality modality = Modality::kNone;
  std::uint8_t input = 0;  // of `node`, where it is a node of this walk
  std::uint16_t node = 0;
  StreamId stream{};
};

/// A signal that a node or a loop gives off, to each of its targets.
struct Output {
  SignalId signal{};
  Range targets{};
  std::int16_t remembered_in = -1;  // cell of the enclosing loop's output; -1: of none
  std::int16_t cell = -1;           // of a loop's output: the cell that holds it
  bool counts_new_tokens = false;
};

struct CompiledNode {
  NodeId id{};
  std::uint16_t scope = 0;        // innermost
  std::uint16_t first_input = 0;  // in the walk's inputs
  Range outputs{};
  InputMask required = 0;
  InputMask streaming = 0;
  // By depth d of a scope around the node.
  std::array<InputMask, kMaxDepth> refilled{};  // made anew in each iteration of that scope
  std::array<InputMask, kMaxDepth>
      promoted{};  // next-iteration values that become current when that scope advances
  std::array<InputMask, kMaxDepth>
      loop_back{};  // fed by loop-backs of that scope, or of one inside it
  bool enable_async_scheduling = true;

  [[nodiscard]] int num_inputs() const { return __builtin_popcount(required); }
};

/// The walk (scope 0) or one of its loops.
struct Scope {
  LoopId loop{};             // not of scope 0
  std::uint16_t parent = 0;  // of scope 0: itself
  std::uint16_t depth = 0;
  std::uint16_t num_children = 0;  // nodes and loops directly inside
  Range nodes{};                   // all nodes inside, at any depth
  Range scopes{};                  // this scope and all inside
  Range outputs{};
  Range cells{};  // remembered values of this loop's own outputs
  std::int32_t max_iters = 1;
};

/// An input that a step ahead takes from the step in flight.
struct ConsumedEdge {
  SignalId signal{};  // the output's
  SignalId input{};
};

/// What one node's outputs give to another: a possible speculation.
struct Successor {
  std::uint16_t target = 0;
  bool is_new_iteration = false;
  InputMask fed = 0;  // inputs of the target
  Range consumed{};   // in the walk's consumed edges
};

struct CompiledWalk {
  WalkId id{};
  PartitionId partition{};
  std::vector<CompiledNode> nodes;
  std::vector<Scope> scopes;
  std::vector<SignalId> inputs;  // of all nodes
  std::vector<Output> outputs;
  std::vector<Target> targets;
  std::vector<bool> cell_accumulates;
  std::vector<Successor> successors;  // grouped by source
  std::vector<Range> successors_of;   // by node
  std::vector<ConsumedEdge> consumed;
  std::vector<std::int16_t> index_of_node;  // by NodeId; -1: not in this walk
  std::vector<std::int16_t> scope_of_loop;  // by LoopId; -1: not in this walk

  [[nodiscard]] std::optional<std::uint16_t> find(NodeId node) const;
  [[nodiscard]] std::optional<std::uint16_t> find(LoopId loop) const;
  /// The bit number of an input; nullopt where the node has no such input.
  [[nodiscard]] std::optional<int> input_of(std::uint16_t node, SignalId input) const;
  [[nodiscard]] SignalId input_name(std::uint16_t node, int input) const {
    return inputs[static_cast<std::size_t>(nodes[node].first_input + input)];
  }
  [[nodiscard]] std::span<const ConsumedEdge> consumed_by(const Successor& successor) const {
    return std::span(consumed).subspan(
        successor.consumed.begin,
        static_cast<std::size_t>(successor.consumed.end - successor.consumed.begin));
  }
};

struct Stream {
  PartitionId from{};
  PartitionId to{};
  SignalId signal{};
  NodeId consumer{};
  SignalId input{};
  ChunkRule chunks;

  [[nodiscard]] bool finite() const;
};

struct CompiledPartition {
  PartitionId id{};
  WalkId initial_walk{};
  std::vector<WalkId> walks;
};

/// Walks of which one step of a node may have rows. A step of rows of one walk bears that walk's id, another one the label.
struct StepWalks {
  NodeId node{};
  WalkId label{};  // of a set of one walk: that walk
  std::vector<WalkId> walks;

  [[nodiscard]] bool has(WalkId walk) const {
    return std::ranges::find(walks, walk) != walks.end();
  }
};

/// All walks of a model.
class Program {
 public:
  Names names;
  std::vector<CompiledWalk> walks;            // by WalkId; that of a label is empty
  std::vector<CompiledPartition> partitions;  // by PartitionId
  std::vector<Stream> streams;                // by StreamId
  std::vector<StepWalks> step_walks;  // each walk of each node is in one set, most sets have one

  [[nodiscard]] const CompiledWalk& walk(WalkId id) const {
    return walks[static_cast<std::size_t>(id)];
  }
  /// The innermost loop around a node.
  [[nodiscard]] std::optional<LoopId> innermost_loop(WalkId walk, NodeId node) const;
};

/// Checks a definition and compiles it. Throws DefinitionError. `names` may hold names already: those keep their ids.
[[nodiscard]] Program compile(const Definition& definition, Names names);

}  // namespace rigel::walk
