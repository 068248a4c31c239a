#pragma once

#include "model/walk/program.h"
#include "tensor/tensor.h"
#include "worker/walk_runtime.h"

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rigel::testing {

inline walk::Program compile_walks(std::vector<walk::Walk> walks) {
  return walk::compile({.walks = std::move(walks), .partitions = {}, .connections = {}}, {});
}

/// The walks of a language model.
inline walk::Definition language_model_walks(std::int32_t max_iters = walk::Loop::kUnbounded) {
  const walk::Node prefill{.name = "LLM",
                           .inputs = {"text_inputs"},
                           .outputs = {{.signal = "new_token", .next_node = walk::kEmitToClient}}};
  const walk::Node decode{
      .name = "LLM",
      .inputs = {"text_inputs"},
      .outputs = {{.signal = "new_token", .next_node = "LLM", .input = "text_inputs"},
                  {.signal = "new_token", .next_node = walk::kEmitToClient}}};
  return {
      .walks = {{"prefill", prefill},
                {"decode",
                 walk::Loop{.name = "decode_loop", .sections = {decode}, .max_iters = max_iters}}},
      .partitions = {},
      .connections = {}};
}

inline Tensor value(std::int32_t number) {
  return Tensor::copy_of(std::span<const std::int32_t>(&number, 1));
}
inline std::int32_t number_in(const Tensor& tensor) {
  return tensor.host_view().span<std::int32_t>()[0];
}
inline std::vector<std::int32_t> numbers_in(const TensorList& tensors) {
  std::vector<std::int32_t> numbers;
  for (const Tensor& tensor : tensors) {
    numbers.push_back(number_in(tensor));
  }
  return numbers;
}

/// A runtime with names instead of ids, for tests of few requests.
class NamedWalks {
 public:
  NamedWalks(walk::Program compiled, std::int32_t num_rows)
      : program(std::move(compiled)), runtime(program, num_rows) {}
  NamedWalks(const NamedWalks&) = delete;
  NamedWalks& operator=(const NamedWalks&) = delete;

  [[nodiscard]] WalkNode at(const std::string& walk, const std::string& node) const {
    return {*program.names.walks.find(walk), *program.names.nodes.find(node)};
  }
  [[nodiscard]] SignalId signal(const std::string& name) const {
    return *program.names.signals.find(name);
  }
  [[nodiscard]] LoopId loop(const std::string& name) const {
    return *program.names.loops.find(name);
  }
  [[nodiscard]] WalkId walk(const std::string& name) const {
    return *program.names.walks.find(name);
  }

  RequestHandle add(std::int32_t row, const std::string& walk_name, std::uint32_t generation = 1) {
    const RequestHandle handle{row, generation};
    runtime.add_request(handle, program.walk(walk(walk_name)).partition, walk(walk_name));
    return handle;
  }
  /// True where the runtime took it.
  bool send(RequestHandle handle, const std::string& node, const std::string& input,
            TensorList tensors = {}, bool can_buffer = false, bool is_streaming = false) {
    WalkInput item{handle, *program.names.nodes.find(node), signal(input), std::move(tensors)};
    std::vector<std::uint32_t> refused;
    runtime.ingest({&item, 1}, can_buffer, is_streaming, refused);
    return refused.empty();
  }
  [[nodiscard]] bool is_ready(RequestHandle handle, WalkNode node) const {
    ReadyNodes ready;
    runtime.ready_nodes(nullptr, node, std::nullopt, ready);
    return std::ranges::find(ready.handles, handle) != ready.handles.end();
  }
  bool pop(RequestHandle handle, WalkNode node) { return runtime.pop(node, {&handle, 1}, true); }
  [[nodiscard]] TensorList input(RequestHandle handle, WalkNode node, const std::string& name) {
    SignalMap signals;
    runtime.gather_inputs(node, handle, signals);
    const TensorList* found = signals.find(signal(name));
    return found == nullptr ? TensorList{} : *found;
  }
  /// False: the step was wasted.
  bool land(RequestHandle handle, WalkNode node) {
    std::vector<std::uint32_t> wasted;
    runtime.land(node, {&handle, 1}, wasted);
    return wasted.empty();
  }
  const RouteOutput& route(RequestHandle handle, WalkNode node,
                           const std::vector<std::pair<std::string, TensorList>>& outputs = {}) {
    SignalMap signals;
    for (const auto& [name, tensors] : outputs) {
      signals.assign(signal(name), tensors);
    }
    const SignalMap* row = &signals;
    runtime.route({node, {&handle, 1}, {&row, 1}}, routed);
    return routed;
  }
  /// A whole step of a ready node, alone.
  const RouteOutput& run(RequestHandle handle, WalkNode node,
                         const std::vector<std::pair<std::string, TensorList>>& outputs = {}) {
    RIGEL_CHECK(pop(handle, node), "the node is not ready");
    land(handle, node);
    return route(handle, node, outputs);
  }
  std::size_t stop(RequestHandle handle, WalkNode node, LoopId which) {
    const LoopStop asked{handle, which};
    std::vector<LoopStop> stopped;
    runtime.stop_loops(node, {&asked, 1}, stopped);
    return stopped.size();
  }
  /// The rows that continue into `target`, committed.
  std::vector<RequestHandle> step_ahead(std::span<const RequestHandle> handles, WalkNode node,
                                        const std::string& target) {
    SpeculatedRows rows;
    std::vector<std::uint32_t> returned;
    runtime.speculate(node, *program.names.nodes.find(target), handles, 1000, {}, rows);
    runtime.commit(rows.id, {}, {}, returned);
    return rows.handles;
  }
  [[nodiscard]] std::int32_t iteration(RequestHandle handle, const std::string& walk_name,
                                       const std::string& loop_name) const {
    RequestInfo info;
    RequestInfo* const infos[] = {&info};
    runtime.update_loop_counters(walk(walk_name), {&handle, 1}, infos);
    return info.loop_counters.count(loop(loop_name));
  }

  walk::Program program;
  WalkRuntime runtime;
  RouteOutput routed;
};

}  // namespace rigel::testing
