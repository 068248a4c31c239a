#include "server/commands/inspect_graphs.h"

#include "graphs/graph_cost.h"
#include "model/language_model_names.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace rigel::server {
namespace {

/// Captured steps that launch the same things, for more or fewer tokens.
struct GraphFamily {
  BucketKind kind{};
  bool gives_logprobs = false;
  std::int32_t num_lanes = 0;  // of packed ones: the most that there are
  std::vector<LaunchCost> launches;
};

bool gives_logprobs(const GraphManifest& graph) {
  return graph.bucket.key == LanguageModelNames::kWithLogprobs.number();
}

double milliseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

std::string_view name_of(BucketKind kind) {
  return kind == BucketKind::kPacked ? "packed" : "batched";
}

/// The costs are told by the smallest bucket and the largest; one bucket alone tells none.
GraphFamily make_family(const std::vector<GraphManifest>& graphs, BucketKind kind,
                        bool with_logprobs) {
  std::vector<const GraphManifest*> members;
  GraphFamily family{.kind = kind, .gives_logprobs = with_logprobs, .num_lanes = 0, .launches = {}};
  for (const GraphManifest& graph : graphs) {
    if (graph.kind == kind && gives_logprobs(graph) == with_logprobs) {
      members.push_back(&graph);
      family.num_lanes = std::max(family.num_lanes, graph.bucket.num_lanes);
    }
  }
  if (kind == BucketKind::kPacked) {
    std::erase_if(members, [&](const GraphManifest* graph) {
      return graph->bucket.num_lanes != family.num_lanes;
    });
  }
  if (members.empty()) {
    return family;
  }
  const auto [small, large] = std::ranges::minmax(
      members, {}, [](const GraphManifest* graph) { return graph->bucket.num_tokens; });
  if (small->bucket.num_tokens < large->bucket.num_tokens) {
    family.launches = launch_costs(*small, *large).value_or(std::vector<LaunchCost>());
  }
  return family;
}

std::array<GraphFamily, 4> families_of(const std::vector<GraphManifest>& graphs) {
  return {make_family(graphs, BucketKind::kBatched, false),
          make_family(graphs, BucketKind::kBatched, true),
          make_family(graphs, BucketKind::kPacked, false),
          make_family(graphs, BucketKind::kPacked, true)};
}

void write_cost(JsonWriter& json, std::string_view name, const CostFunction& cost) {
  json.key(name).begin_object();
  json.field("fixed", cost.fixed)
      .field("per_token", cost.per_token)
      .field("per_context_token", cost.per_context_token);
  json.end_object();
}

void write_launches(JsonWriter& json, const GraphFamily& family) {
  for (const LaunchCost& launch : family.launches) {
    json.begin_object()
        .field("kind", name_of(family.kind))
        .field("logprobs", family.gives_logprobs)
        .field("operation", launch.operation)
        .key("layer");
    launch.layer < 0 ? json.value(nullptr) : json.value(launch.layer);
    write_cost(json, "read_bytes", launch.read_bytes);
    write_cost(json, "written_bytes", launch.written_bytes);
    write_cost(json, "flops", launch.flops);
    json.end_object();
  }
}

/// All launches of one operation, in layers or outside of them.
struct OperationCost {
  std::string_view name;
  bool is_in_layers = false;
  int num_launches = 0;
  CostFunction bytes;
  CostFunction flops;
};

std::vector<OperationCost> by_operation(const std::vector<LaunchCost>& launches) {
  std::vector<OperationCost> sums;
  for (const LaunchCost& launch : launches) {
    const bool is_in_layers = launch.layer >= 0;
    auto known = std::ranges::find_if(sums, [&](const OperationCost& sum) {
      return sum.name == launch.operation && sum.is_in_layers == is_in_layers;
    });
    if (known == sums.end()) {
      known = sums.insert(sums.end(), {launch.operation, is_in_layers, 0, {}, {}});
    }
    ++known->num_launches;
    known->bytes += launch.read_bytes;
    known->bytes += launch.written_bytes;
    known->flops += launch.flops;
  }
  return sums;
}

void print_launches(const GraphFamily& family) {
  if (family.launches.empty()) {
    return;
  }
  const bool is_packed = family.kind == BucketKind::kPacked;
  fmt::print("\nlaunches of a step {}, {} log-probabilities: bytes moved and FLOP,\n",
             is_packed ? fmt::format("with prompts and {} requests", family.num_lanes)
                       : "of decode lanes alone",
             family.gives_logprobs ? "with" : "without");
  fmt::print("fixed + a token of the step + a token of the requests' contexts\n");
  for (const OperationCost& sum : by_operation(family.launches)) {
    fmt::print(
        "  {:<20} {:>4} x {:<9} {:>12.0f} + {:>9.0f} + {:>7.1f} B  {:>9.0f} + {:>11.0f} + "
        "{:>8.0f} FLOP\n",
        sum.name, sum.num_launches, sum.is_in_layers ? "in layers" : "outside", sum.bytes.fixed,
        sum.bytes.per_token, sum.bytes.per_context_token, sum.flops.fixed, sum.flops.per_token,
        sum.flops.per_context_token);
  }
}

/// The blocks that an eager step of so many tokens replays.
struct BlockGraphs {
  std::int64_t num_tokens = 0;
  std::int64_t num_graphs = 0;
  std::int64_t num_nodes = 0;
  std::int64_t num_bytes = 0;
};

std::vector<BlockGraphs> by_tokens(const std::vector<GraphManifest>& graphs) {
  std::vector<BlockGraphs> sums;
  for (const GraphManifest& graph : graphs) {
    auto known = std::ranges::find(sums, graph.bucket.num_tokens, &BlockGraphs::num_tokens);
    if (known == sums.end()) {
      known = sums.insert(sums.end(), {graph.bucket.num_tokens, 0, 0, 0});
    }
    ++known->num_graphs;
    known->num_nodes += graph.num_nodes;
    known->num_bytes += graph.num_bytes;
  }
  return sums;
}

}  // namespace

void write_block_graphs(JsonWriter& json, const std::vector<GraphManifest>& graphs) {
  json.key("block_graphs").begin_array();
  for (const BlockGraphs& blocks : by_tokens(graphs)) {
    json.begin_object()
        .field("tokens", blocks.num_tokens)
        .field("graphs", blocks.num_graphs)
        .field("nodes", blocks.num_nodes)
        .field("bytes", blocks.num_bytes)
        .end_object();
  }
  json.end_array();
}

void print_block_graphs(const std::vector<GraphManifest>& graphs) {
  if (graphs.empty()) {
    return;
  }
  fmt::print("\ncaptured blocks between attentions\n  tokens  graphs  nodes       KiB\n");
  for (const BlockGraphs& blocks : by_tokens(graphs)) {
    fmt::print("  {:>6}  {:>6}  {:>5}  {:>8.1f}\n", blocks.num_tokens, blocks.num_graphs,
               blocks.num_nodes, static_cast<double>(blocks.num_bytes) / 1024);
  }
}

void write_graphs(JsonWriter& json, const std::vector<GraphManifest>& graphs) {
  json.key("graphs").begin_array();
  for (const GraphManifest& graph : graphs) {
    json.begin_object()
        .field("kind", name_of(graph.kind))
        .field("requests", graph.bucket.num_lanes)
        .field("tokens", graph.bucket.num_tokens)
        .field("logprobs", gives_logprobs(graph))
        .field("nodes", graph.num_nodes)
        .field("bytes", graph.num_bytes)
        .field("capture_ms", milliseconds(graph.capture_time))
        .end_object();
  }
  json.end_array().key("launches").begin_array();
  for (const GraphFamily& family : families_of(graphs)) {
    write_launches(json, family);
  }
  json.end_array();
}

void print_graphs(const std::vector<GraphManifest>& graphs) {
  fmt::print(
      "\ncaptured steps\n  tokens  requests  log-probs  nodes       KiB  capture ms  MiB moved     "
      "GFLOP\n");
  for (const GraphManifest& graph : graphs) {
    simt::Traffic sum;
    for (const LaunchRecord& launch : graph.launches) {
      sum.read_bytes += launch.traffic.read_bytes;
      sum.written_bytes += launch.traffic.written_bytes;
      sum.flops += launch.traffic.flops;
    }
    fmt::print("  {:>6}  {:>8}  {:>9}  {:>5}  {:>8.1f}  {:>10.2f}  {:>9.1f}  {:>8.2f}\n",
               graph.bucket.num_tokens, graph.bucket.num_lanes,
               gives_logprobs(graph) ? "yes" : "no", graph.num_nodes,
               static_cast<double>(graph.num_bytes) / 1024, milliseconds(graph.capture_time),
               static_cast<double>(sum.read_bytes + sum.written_bytes) / (1 << 20),
               static_cast<double>(sum.flops) / 1e9);
  }
  for (const GraphFamily& family : families_of(graphs)) {
    print_launches(family);
  }
}

}  // namespace rigel::server
