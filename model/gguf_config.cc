#include "model/gguf_config.h"

#include "model/checkpoint/weight_names.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace rigel {
namespace {

/// The keys of one architecture: "llama.block_count" is `keys.integer("block_count")`.
class ArchitectureKeys {
 public:
  ArchitectureKeys(const GgufMetadata& metadata, std::string architecture)
      : metadata_(metadata), architecture_(std::move(architecture)) {}

  [[nodiscard]] std::string key(std::string_view name) const {
    return fmt::format("{}.{}", architecture_, name);
  }
  [[nodiscard]] std::optional<int> integer(std::string_view name) const {
    const auto value = metadata_.integer(key(name));
    if (value && (*value < 0 || *value > std::numeric_limits<int>::max())) {
      fail(name, "an integer between 0 and 2^31 - 1", fmt::format("{}", *value));
    }
    return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
  }
  [[nodiscard]] int require_integer(std::string_view name) const {
    const auto value = integer(name);
    if (!value) {
      fail(name, "given", "nothing");
    }
    return *value;
  }
  [[nodiscard]] std::optional<double> number(std::string_view name) const {
    return metadata_.number(key(name));
  }
  [[nodiscard]] std::optional<std::string> string(std::string_view name) const {
    return metadata_.string(key(name));
  }
  [[noreturn]] void fail(std::string_view name, std::string_view expected,
                         std::string_view found) const {
    throw ModelFileError(fmt::format("{}: metadata key '{}' must be {}, got {}", metadata_.source(),
                                     key(name), expected, found));
  }

 private:
  const GgufMetadata& metadata_;
  std::string architecture_;
};

std::string read_architecture(const GgufMetadata& metadata) {
  const std::string architecture = metadata.string("general.architecture").value_or("");
  if (architecture != "llama") {  // GGUF files of Mistral are of this architecture, too
    throw ModelFileError(fmt::format(
        "{}: metadata key 'general.architecture' must be a supported architecture ({}), "
        "got '{}'",
        metadata.source(), supported_architectures(), architecture));
  }
  return architecture;
}

/// A count as an int; one too large stays too large, for validate() to refuse.
int clamped_to_int(std::int64_t count) {
  return static_cast<int>(std::min<std::int64_t>(count, std::numeric_limits<int>::max()));
}

void read_extents(const ArchitectureKeys& keys, const GgufCheckpoint& checkpoint,
                  ModelConfig& config) {
  config.hidden_size = keys.require_integer("embedding_length");
  config.num_layers = keys.require_integer("block_count");
  config.num_heads = keys.require_integer("attention.head_count");
  config.num_kv_heads = keys.integer("attention.head_count_kv").value_or(config.num_heads);
  config.intermediate_size = keys.require_integer("feed_forward_length");
  config.max_position_embeddings = keys.require_integer("context_length");
  const auto key_length = keys.integer("attention.key_length");
  if (key_length) {
    config.head_dim = *key_length;
  } else if (config.num_heads > 0 && config.hidden_size % config.num_heads == 0) {
    config.head_dim = config.hidden_size / config.num_heads;
  } else {
    keys.fail("attention.head_count",
              "a divisor of the embedding length where key_length is absent",
              fmt::format("{}", config.num_heads));
  }
  const int value_length = keys.integer("attention.value_length").value_or(config.head_dim);
  if (value_length != config.head_dim) {
    keys.fail("attention.value_length", fmt::format("the key length {}", config.head_dim),
              fmt::format("{}", value_length));
  }
  const CheckpointTensor* embedding =
      checkpoint.find(source_name(CheckpointFormat::kGguf, WeightKind::kEmbedding, kNoLayer));
  const auto vocab_size = keys.integer("vocab_size");
  if (vocab_size) {
    config.vocab_size = *vocab_size;
  } else if (embedding != nullptr && embedding->shape.rank() == 2) {
    config.vocab_size = clamped_to_int(embedding->shape[0]);
  } else if (const GgufEntry* tokens = checkpoint.metadata().find("tokenizer.ggml.tokens")) {
    config.vocab_size = clamped_to_int(static_cast<std::int64_t>(tokens->num_elements));
  }
}

void read_yarn(const ArchitectureKeys& keys, RopeConfig& rope) {
  rope.beta_fast = keys.number("rope.scaling.yarn_beta_fast").value_or(rope.beta_fast);
  rope.beta_slow = keys.number("rope.scaling.yarn_beta_slow").value_or(rope.beta_slow);
  const double blend = keys.number("rope.scaling.yarn_ext_factor").value_or(1.0);
  if (blend != 1.0) {
    keys.fail("rope.scaling.yarn_ext_factor", "1", fmt::format("{}", blend));
  }
  // The file's factor comes on top of YaRN's own magnitude.
  if (const auto extra = keys.number("rope.scaling.attn_factor")) {
    rope.attention_factor = *extra * (0.1 * std::log(std::max(rope.factor, 1.0)) + 1.0);
  }
}

RopeConfig read_rope(const ArchitectureKeys& keys, const ModelConfig& config,
                     const GgufCheckpoint& checkpoint) {
  RopeConfig rope;
  rope.interleaved = true;  // converters to this architecture permute q and k
  rope.theta = keys.number("rope.freq_base").value_or(rope.theta);
  rope.rotary_dim = keys.integer("rope.dimension_count").value_or(config.head_dim);
  const auto legacy_factor = keys.number("rope.scale_linear");
  const std::string scaling =
      keys.string("rope.scaling.type").value_or(legacy_factor ? "linear" : "none");
  if (scaling == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (scaling == "yarn") {
    rope.scaling = RopeScaling::kYarn;
  } else if (scaling != "none") {
    keys.fail("rope.scaling.type", "none, linear or yarn", scaling);
  }
  if (rope.scaling != RopeScaling::kNone) {
    rope.factor = keys.number("rope.scaling.factor").value_or(legacy_factor.value_or(1.0));
    rope.original_max_position = keys.integer("rope.scaling.original_context_length")
                                     .value_or(config.max_position_embeddings);
  }
  if (rope.scaling == RopeScaling::kYarn) {
    read_yarn(keys, rope);
  }
  if (const CheckpointTensor* divisors = checkpoint.find("rope_freqs.weight")) {
    rope.frequency_divisors.resize(static_cast<std::size_t>(divisors->shape.num_elements()));
    dequantize_rows(*divisors, 0, divisors->num_rows(), std::span(rope.frequency_divisors));
  }
  return rope;
}

bool has_layer_weight(const GgufCheckpoint& checkpoint, WeightKind kind) {
  return checkpoint.find(source_name(CheckpointFormat::kGguf, kind, /*layer=*/0)) != nullptr;
}

std::optional<int> token_id(const GgufMetadata& metadata, std::string_view name) {
  const auto id = metadata.integer(fmt::format("tokenizer.ggml.{}_token_id", name));
  if (id && (*id < 0 || *id > std::numeric_limits<int>::max())) {
    throw ModelFileError(
        fmt::format("{}: metadata key 'tokenizer.ggml.{}_token_id' must be a token id, got {}",
                    metadata.source(), name, *id));
  }
  return id ? std::optional(static_cast<int>(*id)) : std::nullopt;
}

}  // namespace

ModelConfig gguf_model_config(const GgufCheckpoint& checkpoint) {
  const GgufMetadata& metadata = checkpoint.metadata();
  ModelConfig config;
  config.architecture = read_architecture(metadata);
  const ArchitectureKeys keys(metadata, config.architecture);
  if (const int experts = keys.integer("expert_count").value_or(0); experts > 0) {
    keys.fail("expert_count", "0 (mixtures of experts are not supported)",
              fmt::format("{}", experts));
  }
  read_extents(keys, checkpoint, config);
  config.rms_norm_epsilon = keys.number("attention.layer_norm_rms_epsilon").value_or(1e-5);
  config.query_scale = keys.number("attention.scale");
  config.tie_word_embeddings =
      checkpoint.find(source_name(CheckpointFormat::kGguf, WeightKind::kLmHead, kNoLayer)) ==
      nullptr;
  config.attention_bias = has_layer_weight(checkpoint, WeightKind::kQBias);
  config.output_bias = has_layer_weight(checkpoint, WeightKind::kOBias);
  config.mlp_bias = has_layer_weight(checkpoint, WeightKind::kGateBias);
  config.sliding_windows.assign(
      static_cast<std::size_t>(std::clamp(config.num_layers, 0, kMaxLayers)),
      keys.integer("attention.sliding_window").value_or(0));
  config.rope = read_rope(keys, config, checkpoint);
  config.bos_id = token_id(metadata, "bos");
  for (const std::string_view name : {"eos", "eot", "eom"}) {
    if (const auto id = token_id(metadata, name)) {
      config.eos_ids.push_back(*id);
    }
  }
  std::sort(config.eos_ids.begin(), config.eos_ids.end());
  config.eos_ids.erase(std::unique(config.eos_ids.begin(), config.eos_ids.end()),
                       config.eos_ids.end());
  validate(config, metadata.source());
  return config;
}

}  // namespace rigel
