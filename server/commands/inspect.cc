#include "server/api/json_writer.h"
#include "server/commands/commands.h"
#include "server/commands/inspect_graphs.h"
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
    write_graphs(json, description.graphs);
    write_block_graphs(json, description.block_graphs);
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
    print_block_graphs(session.service().description().block_graphs);
  }
  return kDone;
}

}  // namespace rigel::server
