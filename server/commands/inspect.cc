#include "model/language_model_names.h"
#include "server/api/json_writer.h"
#include "server/commands/commands.h"
#include "server/model_session.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

namespace rigel::server {
namespace {

std::int64_t num_parameters(const Checkpoint& checkpoint) {
  std::int64_t sum = 0;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    sum += tensor.shape.num_elements();
  }
  return sum;
}

std::vector<std::int64_t> extents(const Shape& shape) {
  std::vector<std::int64_t> out;
  for (int i = 0; i < shape.rank(); ++i) {
    out.push_back(shape[i]);
  }
  return out;
}

/// The launches of one operation in a captured step.
struct OperationTotal {
  std::string name;
  int num_launches = 0;
  simt::Traffic traffic;
};

void add(simt::Traffic& sum, const simt::Traffic& part) {
  sum.read_bytes += part.read_bytes;
  sum.written_bytes += part.written_bytes;
  sum.flops += part.flops;
}

std::vector<OperationTotal> operations_of(const GraphManifest& graph) {
  std::vector<OperationTotal> totals;
  for (const LaunchRecord& launch : graph.launches) {
    auto known = std::ranges::find(totals, launch.name, &OperationTotal::name);
    if (known == totals.end()) {
      known = totals.insert(totals.end(), {launch.name, 0, {}});
    }
    ++known->num_launches;
    add(known->traffic, launch.traffic);
  }
  return totals;
}

bool gives_logprobs(const GraphManifest& graph) {
  return graph.bucket.key == LanguageModelNames::kDecodeWithLogprobs.number();
}

void write_graphs(JsonWriter& json, const std::vector<GraphManifest>& graphs) {
  json.begin_array();
  for (const GraphManifest& graph : graphs) {
    json.begin_object()
        .field("requests", graph.bucket.num_lanes)
        .field("logprobs", gives_logprobs(graph))
        .field("nodes", graph.num_nodes)
        .field("bytes", graph.num_bytes)
        .key("operations")
        .begin_array();
    for (const OperationTotal& total : operations_of(graph)) {
      json.begin_object().field("name", total.name).field("launches", total.num_launches);
      json.field("read_bytes", total.traffic.read_bytes)
          .field("written_bytes", total.traffic.written_bytes)
          .field("flops", total.traffic.flops)
          .end_object();
    }
    json.end_array().end_object();
  }
  json.end_array();
}

/// The captured steps, and what the largest of them consists of.
void print_graphs(const std::vector<GraphManifest>& graphs) {
  fmt::print(
      "\ncaptured decode steps\n  requests  log-probs  nodes       KiB  MiB moved     GFLOP\n");
  const GraphManifest* largest = nullptr;
  for (const GraphManifest& graph : graphs) {
    simt::Traffic sum;
    for (const LaunchRecord& launch : graph.launches) {
      add(sum, launch.traffic);
    }
    fmt::print("  {:>8}  {:>9}  {:>5}  {:>8.1f}  {:>9.1f}  {:>8.2f}\n", graph.bucket.num_lanes,
               gives_logprobs(graph) ? "yes" : "no", graph.num_nodes,
               static_cast<double>(graph.num_bytes) / 1024,
               static_cast<double>(sum.read_bytes + sum.written_bytes) / (1 << 20),
               static_cast<double>(sum.flops) / 1e9);
    if (largest == nullptr || graph.bucket.num_lanes >= largest->bucket.num_lanes) {
      largest = &graph;
    }
  }
  if (largest == nullptr) {
    return;
  }
  fmt::print("\nlaunches of the largest, with every request at its longest\n");
  for (const OperationTotal& total : operations_of(*largest)) {
    fmt::print("  {:<24} {:>5} x  {:>9.1f} MiB read  {:>9.1f} MiB written  {:>8.3f} GFLOP\n",
               total.name, total.num_launches,
               static_cast<double>(total.traffic.read_bytes) / (1 << 20),
               static_cast<double>(total.traffic.written_bytes) / (1 << 20),
               static_cast<double>(total.traffic.flops) / 1e9);
  }
}

void write_config(JsonWriter& json, const ModelConfig& config) {
  json.begin_object();
  json.field("hidden_size", config.hidden_size).field("num_layers", config.num_layers);
  json.field("num_heads", config.num_heads).field("num_kv_heads", config.num_kv_heads);
  json.field("head_dim", config.head_dim).field("intermediate_size", config.intermediate_size);
  json.field("vocab_size", config.vocab_size)
      .field("max_position_embeddings", config.max_position_embeddings);
  json.field("tie_word_embeddings", config.tie_word_embeddings);
  json.end_object();
}

std::string as_json(const ModelSession& session, bool with_graphs) {
  const ModelFiles& files = session.files();
  const ServiceDescription& description = session.service().description();
  JsonWriter json;
  json.begin_object()
      .field("model", session.name())
      .field("name", files.name)
      .field("architecture", files.config.architecture);
  json.field("format", name_of(files.checkpoint->format()))
      .field("parameters", num_parameters(*files.checkpoint));
  json.field("checkpoint_bytes", files.checkpoint->total_bytes()).key("config");
  write_config(json, files.config);
  json.field("device", description.device)
      .field("dtype", description.dtype)
      .field("gemm", description.gemm);
  json.field("max_model_len", session.service().limits().max_model_len);
  json.key("memory_bytes").begin_object();
  for (const auto& [part, num_bytes] : description.memory_bytes) {
    json.field(part, num_bytes);
  }
  json.end_object().key("tensors").begin_array();
  for (const CheckpointTensor& tensor : files.checkpoint->tensors()) {
    json.begin_object()
        .field("name", tensor.name)
        .field("dtype", name_of(tensor.type))
        .key("shape")
        .begin_array();
    for (const std::int64_t extent : extents(tensor.shape)) {
      json.value(extent);
    }
    json.end_array().field("bytes", tensor.bytes.size()).end_object();
  }
  json.end_array();
  if (with_graphs) {
    json.key("graphs");
    write_graphs(json, description.graphs);
  }
  json.end_object();
  return json.take();
}

void print_table(const ModelSession& session) {
  const ModelFiles& files = session.files();
  const ModelConfig& config = files.config;
  const ServiceDescription& description = session.service().description();
  fmt::print("{}\n", files.name);
  fmt::print("  architecture  {} ({})\n", config.architecture, name_of(files.checkpoint->format()));
  fmt::print("  parameters    {:.1f} M in {} tensors, {:.1f} MiB as stored\n",
             static_cast<double>(num_parameters(*files.checkpoint)) / 1e6,
             files.checkpoint->tensors().size(),
             static_cast<double>(files.checkpoint->total_bytes()) / (1 << 20));
  fmt::print("  layers        {} of width {}, {} heads of {} ({} for keys and values), mlp {}\n",
             config.num_layers, config.hidden_size, config.num_heads, config.head_dim,
             config.num_kv_heads, config.intermediate_size);
  fmt::print("  vocabulary    {}, context {} tokens (here {})\n", config.vocab_size,
             config.max_position_embeddings, session.service().limits().max_model_len);
  fmt::print("  runs on       {}, {}, gemm {}\n\nmemory\n", description.device, description.dtype,
             description.gemm);
  for (const auto& [part, num_bytes] : description.memory_bytes) {
    fmt::print("  {:<24} {:>10.1f} MiB\n", part, static_cast<double>(num_bytes) / (1 << 20));
  }
  fmt::print("\ntensors\n");
  for (const CheckpointTensor& tensor : files.checkpoint->tensors()) {
    std::string shape;
    for (const std::int64_t extent : extents(tensor.shape)) {
      shape += fmt::format("{}{}", shape.empty() ? "" : " x ", extent);
    }
    fmt::print("  {:<48} {:<6} {:>16} {:>12.3f} MiB\n", tensor.name, name_of(tensor.type), shape,
               static_cast<double>(tensor.bytes.size()) / (1 << 20));
  }
}

}  // namespace

int run_inspect(const InspectOptions& options) {
  const ModelSession session(options.model, options.worker);
  if (options.json) {
    fmt::print("{}\n", as_json(session, options.graph));
    return kDone;
  }
  print_table(session);
  if (options.graph) {
    print_graphs(session.service().description().graphs);
  }
  return kDone;
}

}  // namespace rigel::server
