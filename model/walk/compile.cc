// What concerns a model as a whole: its partitions and the streams between them. Each walk is walk_compiler.cc's.

#include "model/walk/program.h"
#include "model/walk/walk_compiler.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>

namespace rigel::walk {

namespace {

/// Calls `visit` for each node inside a section.
void for_each_node(const Section& section, const std::function<void(const Node&)>& visit) {
  const auto visit_all = [&](const std::vector<Section>& sections) {
    for (const Section& child : sections) {
      for_each_node(child, visit);
    }
  };
  if (const auto* node = std::get_if<Node>(&section)) {
    visit(*node);
  } else if (const auto* loop = std::get_if<Loop>(&section)) {
    visit_all(loop->sections);
  } else if (const auto* sequential = std::get_if<Sequential>(&section)) {
    visit_all(sequential->sections);
  } else {
    visit_all(std::get<Parallel>(section).sections);
  }
}

struct CheckChunks {
  std::string where;

  void operator()(const FixedChunks& rule) const {
    require(rule.num_items >= 1, "num_items", rule.num_items, "at least 1");
  }
  void operator()(const SlidingWindow& rule) const {
    require(rule.window >= 1, "window", rule.window, "at least 1");
    require(rule.stride >= 1 && rule.stride <= rule.window, "stride", rule.stride,
            "1 to the window, or items would be lost");
  }
  void operator()(const LeftContext& rule) const {
    require(rule.chunk >= 1, "chunk", rule.chunk, "at least 1");
    require(rule.left >= 0 && rule.left < rule.chunk, "left", rule.left,
            "0 or more and less than the chunk");
  }
  void require(bool holds, const char* field, std::int32_t value, const char* fix) const {
    if (!holds) {
      throw DefinitionError(fmt::format("{}: {} is {}; it must be {}", where, field, value, fix));
    }
  }
};

class ModelCompiler {
 public:
  ModelCompiler(const Definition& definition, Names names) : definition_(definition) {
    program_.names = std::move(names);
  }

  Program compile() {
    intern_names();
    add_partitions();
    add_streams();
    program_.walks.resize(program_.names.walks.size());
    for (const Walk& walk : definition_.walks) {
      const WalkId id = *program_.names.walks.find(walk.name);
      program_.walks[static_cast<std::size_t>(id)] =
          WalkCompiler(walk, program_.names, partition_of(id), program_.streams).compile();
    }
    for (CompiledWalk& walk : program_.walks) {
      walk.index_of_node.resize(program_.names.nodes.size(), -1);
      walk.scope_of_loop.resize(program_.names.loops.size(), -1);
    }
    check_streaming_inputs();
    for (const CombinedWalks& combined : definition_.combined) {
      program_.step_walks.push_back(compile_combined(combined));
    }
    add_lone_walks();
    return std::move(program_);
  }

 private:
  void intern_names() {
    for (const Walk& walk : definition_.walks) {
      if (std::ranges::count(definition_.walks, walk.name, &Walk::name) > 1 || walk.name.empty()) {
        throw DefinitionError(fmt::format("walk '{}': a walk needs a name of its own", walk.name));
      }
      program_.names.walks.intern(walk.name);
      for_each_node(walk.body, [&](const Node& node) { program_.names.nodes.intern(node.name); });
    }
    for (const CombinedWalks& combined : definition_.combined) {
      program_.names.walks.intern(combined.label);
    }
  }

  void add_partitions() {
    partitions_ = definition_.partitions;
    if (partitions_.empty()) {
      partitions_.push_back({.name = "main"});
      for (const Walk& walk : definition_.walks) {
        partitions_[0].walks.push_back(walk.name);
      }
      partitions_[0].initial_walk = partitions_[0].walks.empty() ? "" : partitions_[0].walks[0];
    }
    partition_of_walk_.assign(program_.names.walks.size(), -1);
    for (const PartitionDefinition& partition : partitions_) {
      const PartitionId id = program_.names.partitions.intern(partition.name);
      program_.partitions.resize(program_.names.partitions.size());
      CompiledPartition& compiled = program_.partitions[static_cast<std::size_t>(id)];
      if (!compiled.walks.empty()) {
        fail(partition, "it is defined twice");
      }
      compiled.id = id;
      for (const std::string& name : partition.walks) {
        add_walk(partition, name, compiled);
      }
      const std::optional<WalkId> initial = program_.names.walks.find(partition.initial_walk);
      if (!initial || std::ranges::count(compiled.walks, *initial) == 0) {
        fail(partition, fmt::format("initial_walk '{}' is not one of its walks; name one of them",
                                    partition.initial_walk));
      }
      compiled.initial_walk = *initial;
    }
    check_homes();
  }

  void add_walk(const PartitionDefinition& partition, const std::string& name,
                CompiledPartition& compiled) {
    if (std::ranges::count(definition_.walks, name, &Walk::name) == 0) {
      fail(partition, fmt::format("there is no walk '{}'; define it or take it out", name));
    }
    const WalkId walk = *program_.names.walks.find(name);
    std::int32_t& owner = partition_of_walk_[static_cast<std::size_t>(walk)];
    if (owner >= 0) {
      fail(partition, fmt::format("walk '{}' is in two partitions; keep one", name));
    }
    owner = static_cast<std::int32_t>(compiled.id);
    compiled.walks.push_back(walk);
  }

  /// Each walk is in a partition, and each node in one only.
  void check_homes() const {
    std::vector<std::int32_t> owner_of_node(program_.names.nodes.size(), -1);
    for (const Walk& walk : definition_.walks) {
      const WalkId id = *program_.names.walks.find(walk.name);
      const std::int32_t partition = partition_of_walk_[static_cast<std::size_t>(id)];
      if (partition < 0) {
        throw DefinitionError(
            fmt::format("walk '{}': no partition has it; add it to one", walk.name));
      }
      for_each_node(walk.body, [&](const Node& node) {
        const NodeId node_id = *program_.names.nodes.find(node.name);
        std::int32_t& owner = owner_of_node[static_cast<std::size_t>(node_id)];
        if (owner >= 0 && owner != partition) {
          throw DefinitionError(fmt::format(
              "walk '{}', node '{}': the node is in another partition, too; name it apart",
              walk.name, node.name));
        }
        owner = partition;
      });
    }
  }

  void add_streams() {
    for (const Connection& connection : definition_.connections) {
      const std::string where = name_of(connection);
      std::visit(CheckChunks{where}, connection.chunks);
      const std::optional<PartitionId> from = program_.names.partitions.find(connection.from);
      const std::optional<PartitionId> to = program_.names.partitions.find(connection.to);
      if (!from || !to || from == to) {
        throw DefinitionError(fmt::format("{}: it must join two partitions", where));
      }
      const PartitionDefinition& consumer =
          *std::ranges::find(partitions_, connection.to, &PartitionDefinition::name);
      if (std::ranges::count(consumer.producer_partitions, connection.from) == 0) {
        throw DefinitionError(fmt::format(
            "{}: partition '{}' does not name '{}' among its producer_partitions; add it", where,
            connection.to, connection.from));
      }
      const std::size_t num_before = program_.streams.size();
      for (const Walk& walk : definition_.walks) {
        if (partition_of(*program_.names.walks.find(walk.name)) == *from) {
          for_each_node(walk.body,
                        [&](const Node& node) { add_streams_of(node, connection, *from, *to); });
        }
      }
      if (program_.streams.size() == num_before) {
        throw DefinitionError(fmt::format(
            "{}: no streaming edge of '{}' uses it; mark one is_streaming with target_partition "
            "'{}'",
            where, connection.from, connection.to));
      }
    }
    if (program_.streams.size() > kMaxStreams) {
      throw DefinitionError(fmt::format("the model has {} streams; at most {} are possible",
                                        program_.streams.size(), kMaxStreams));
    }
  }

  void add_streams_of(const Node& node, const Connection& connection, PartitionId from,
                      PartitionId to) {
    for (const Edge& edge : node.outputs) {
      if (!edge.is_streaming || edge.signal != connection.signal ||
          edge.target_partition != connection.to) {
        continue;
      }
      const std::string input = edge.input.empty() ? edge.signal : edge.input;
      if (!consumes(connection.to, edge.next_node, input)) {
        throw DefinitionError(fmt::format(
            "node '{}', edge '{}' to '{}': no walk of partition '{}' has that node with "
            "the streaming input '{}'; add it to its streaming_inputs",
            node.name, edge.signal, edge.next_node, connection.to, input));
      }
      const Stream stream{.from = from,
                          .to = to,
                          .signal = program_.names.signals.intern(edge.signal),
                          .consumer = *program_.names.nodes.find(edge.next_node),
                          .input = program_.names.signals.intern(input),
                          .chunks = connection.chunks};
      const auto same = [&](const Stream& other) {
        return other.from == from && other.to == to && other.signal == stream.signal &&
               other.consumer == stream.consumer && other.input == stream.input;
      };
      // Another walk of the producer may feed the same stream.
      if (std::ranges::none_of(program_.streams, same)) {
        program_.streams.push_back(stream);
      }
    }
  }

  [[nodiscard]] bool consumes(const std::string& partition, const std::string& consumer,
                              const std::string& input) const {
    bool found = false;
    for (const Walk& walk : definition_.walks) {
      const PartitionId owner = partition_of(*program_.names.walks.find(walk.name));
      if (program_.names.partitions.name(owner) == partition) {
        for_each_node(walk.body, [&](const Node& node) {
          found = found ||
                  (node.name == consumer && std::ranges::count(node.streaming_inputs, input) > 0);
        });
      }
    }
    return found;
  }

  /// A streaming input that no stream fills would wait for ever.
  void check_streaming_inputs() const {
    for (const Walk& walk : definition_.walks) {
      for_each_node(walk.body, [&](const Node& node) {
        for (const std::string& input : node.streaming_inputs) {
          const auto fills = [&](const Stream& stream) {
            return program_.names.nodes.name(stream.consumer) == node.name &&
                   program_.names.signals.name(stream.input) == input;
          };
          if (std::ranges::count_if(program_.streams, fills) != 1) {
            throw DefinitionError(fmt::format(
                "walk '{}', node '{}', streaming input '{}': {} streams fill it; add "
                "one walk::Connection and the edge that uses it",
                walk.name, node.name, input, std::ranges::count_if(program_.streams, fills)));
          }
        }
      });
    }
  }

  [[nodiscard]] StepWalks compile_combined(const CombinedWalks& combined) const {
    if (combined.label.empty() ||
        std::ranges::count(definition_.walks, combined.label, &Walk::name) > 0 ||
        std::ranges::count(definition_.combined, combined.label, &CombinedWalks::label) > 1) {
      fail(combined, "the label must be a name of its own, of no walk and no other set");
    }
    const std::optional<NodeId> node = program_.names.nodes.find(combined.node);
    if (!node) {
      fail(combined, "there is no such node; name one of a walk");
    }
    if (combined.walks.size() < 2 || combined.walks.size() > CombinedWalks::kMaxWalks) {
      fail(combined, fmt::format("walks has {} names; it must have 2 to {}", combined.walks.size(),
                                 CombinedWalks::kMaxWalks));
    }
    StepWalks compiled{
        .node = *node, .label = *program_.names.walks.find(combined.label), .walks = {}};
    for (const std::string& name : combined.walks) {
      const std::optional<WalkId> walk = program_.names.walks.find(name);
      if (!walk || !program_.walk(*walk).find(*node)) {
        fail(combined, fmt::format("walk '{}' does not have the node; take it out", name));
      }
      if (compiled.has(*walk) || is_in_a_set(*node, *walk)) {
        fail(combined, fmt::format("walk '{}' is combined twice; keep one", name));
      }
      compiled.walks.push_back(*walk);
    }
    return compiled;
  }

  [[nodiscard]] bool is_in_a_set(NodeId node, WalkId walk) const {
    return std::ranges::any_of(program_.step_walks, [=](const StepWalks& set) {
      return set.node == node && set.has(walk);
    });
  }

  void add_lone_walks() {
    for (const CompiledWalk& walk : program_.walks) {
      for (const CompiledNode& node : walk.nodes) {
        if (!is_in_a_set(node.id, walk.id)) {
          program_.step_walks.push_back({node.id, walk.id, {walk.id}});
        }
      }
    }
  }

  [[nodiscard]] PartitionId partition_of(WalkId walk) const {
    return static_cast<PartitionId>(partition_of_walk_[static_cast<std::size_t>(walk)]);
  }
  [[nodiscard]] static std::string name_of(const Connection& connection) {
    return fmt::format("connection '{}' from '{}' to '{}'", connection.signal, connection.from,
                       connection.to);
  }
  [[noreturn]] static void fail(const CombinedWalks& combined, const std::string& message) {
    throw DefinitionError(fmt::format("combined walks '{}' of node '{}': {}", combined.label,
                                      combined.node, message));
  }
  [[noreturn]] static void fail(const PartitionDefinition& partition, const std::string& message) {
    throw DefinitionError(fmt::format("partition '{}': {}", partition.name, message));
  }

  const Definition& definition_;
  Program program_;
  std::vector<PartitionDefinition> partitions_;
  std::vector<std::int32_t> partition_of_walk_;  // by WalkId; -1: none
};

}  // namespace

Program compile(const Definition& definition, Names names) {
  return ModelCompiler(definition, std::move(names)).compile();
}

}  // namespace rigel::walk
