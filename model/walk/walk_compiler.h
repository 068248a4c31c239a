#pragma once

#include "model/walk/program.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rigel::walk {

/// One walk on its way from a section tree to tables. Load time only.
class WalkCompiler {
 public:
  /// `streams` are those of the whole model. The tables keep no reference to `definition`.
  WalkCompiler(const Walk& definition, Names& names, PartitionId partition,
               const std::vector<Stream>& streams);

  [[nodiscard]] CompiledWalk compile();

 private:
  /// From the walk's root: which child of each composition, and whether its children follow each other.
  struct PathStep {
    int child = 0;
    bool ordered = false;
  };
  using Path = std::vector<PathStep>;
  struct Producer {
    Target::Kind kind{};
    std::uint16_t depth = 0;  // of the innermost scope around producer and input
  };
  /// What gives off signals: a node, or a loop to the section around it.
  struct Emitter {
    std::string what;  // for messages: "node 'LLM'"
    const Path* path = nullptr;
    std::uint16_t scope = 0;  // that it is directly in
    std::uint16_t first_node = 0;
    std::uint16_t end_node = 0;
  };

  // Numbering.
  void number(const Section& section, std::uint16_t scope, const Path& path);
  void number_children(const std::vector<Section>& sections, std::uint16_t scope, const Path& path,
                       bool ordered);
  void add_node(const Node& node, std::uint16_t scope, const Path& path);
  void add_loop(const Loop& loop, std::uint16_t parent, const Path& path);

  // Outputs.
  void emit(const Emitter& emitter, const std::vector<Edge>& edges, Range& outputs);
  [[nodiscard]] Target target_of(const Emitter& emitter, const Edge& edge);
  [[nodiscard]] Target stream_target(const Emitter& emitter, const Edge& edge) const;
  [[nodiscard]] Target::Kind direction(const Emitter& emitter, const Edge& edge,
                                       std::uint16_t target) const;
  void emit_loop(std::uint16_t scope);
  void remember_outputs(std::uint16_t scope);
  [[nodiscard]] Output& output_inside(std::uint16_t scope, SignalId signal);

  // What follows from the edges.
  void classify_inputs();
  void classify_input(std::uint16_t node, int input);
  void find_successors();
  void check_no_cycle() const;

  [[nodiscard]] Emitter emitter_of_node(std::uint16_t node) const;
  [[nodiscard]] Emitter emitter_of_loop(std::uint16_t scope) const;
  [[noreturn]] void fail(std::string_view where, const std::string& message) const;
  [[nodiscard]] std::string node_name(std::uint16_t node) const;

  const Walk& definition_;
  Names& names_;
  const std::vector<Stream>& streams_;
  CompiledWalk walk_;
  std::vector<const Node*> nodes_;  // by node number
  std::vector<Path> node_paths_;
  std::vector<const Loop*> loops_;  // by scope number; null for the walk
  std::vector<Path> scope_paths_;
  std::vector<std::vector<Producer>> producers_;                  // by input of the walk
  std::vector<std::pair<std::uint16_t, std::uint16_t>> forward_;  // node numbers
};

}  // namespace rigel::walk
