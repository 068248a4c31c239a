#include "model/hugging_face_config.h"

#include "model/json_fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

namespace rigel {
namespace {

namespace json = simdjson::dom;

int require_int(const JsonFields& fields, std::string_view name) {
  const auto value = fields.small_integer(name);
  if (!value) {
    fields.fail(name, "given");
  }
  return *value;
}

std::string read_architecture(const JsonFields& fields) {
  const std::string model_type = fields.string("model_type").value_or("");
  if (model_type != "llama" && model_type != "mistral") {
    fields.fail("model_type",
                fmt::format("a supported architecture ({})", supported_architectures()));
  }
  const std::string_view expected =
      model_type == "llama" ? "LlamaForCausalLM" : "MistralForCausalLM";
  if (const auto names = fields.array("architectures")) {
    for (const json::element name : *names) {
      if (name.is_string() && std::string_view(name) == expected) {
        return model_type;
      }
    }
    fields.fail("architectures", fmt::format("[\"{}\"] for model_type {}", expected, model_type));
  }
  return model_type;
}

Activation read_activation(const JsonFields& fields) {
  const std::string name = fields.string("hidden_act").value_or("silu");
  if (name == "silu" || name == "swish") {
    return Activation::kSilu;
  }
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") {
    return Activation::kGeluTanh;
  }
  if (name == "gelu") {
    return Activation::kGelu;
  }
  fields.fail("hidden_act", "silu, gelu_pytorch_tanh or gelu");
}

/// One window a layer. Mistral's sliding_window holds for all layers, unless layer_types says which; Llama has none.
std::vector<int> read_windows(const JsonFields& fields, const ModelConfig& config) {
  const bool has_windows = config.architecture == "mistral";
  const int window = has_windows ? fields.small_integer("sliding_window").value_or(0) : 0;
  if (has_windows && fields.find("sliding_window") && window <= 0) {
    fields.fail("sliding_window", "positive or null");
  }
  std::vector<int> windows(static_cast<std::size_t>(std::clamp(config.num_layers, 0, kMaxLayers)),
                           window);
  const auto types = fields.array("layer_types");
  if (!types) {
    return windows;
  }
  if (types->size() != windows.size()) {
    fields.fail("layer_types",
                fmt::format("a list of num_hidden_layers = {} types", windows.size()));
  }
  std::size_t layer = 0;
  for (const json::element element : *types) {
    const std::string_view type = element.is_string() ? std::string_view(element) : "";
    if (type == "full_attention") {
      windows[layer] = 0;
    } else if (type != "sliding_attention" || window == 0) {
      fields.fail("layer_types", window == 0
                                     ? "full_attention in every layer, without a sliding_window"
                                     : "full_attention or sliding_attention in every layer");
    }
    ++layer;
  }
  return windows;
}

RopeScaling read_scaling(const JsonFields& rope) {
  const std::string_view field = rope.find("rope_type") ? "rope_type" : "type";
  const std::string name = rope.string(field).value_or("default");
  if (name == "default") {
    return RopeScaling::kNone;
  }
  if (name == "linear") {
    return RopeScaling::kLinear;
  }
  if (name == "llama3") {
    return RopeScaling::kLlama3;
  }
  if (name == "yarn") {
    return RopeScaling::kYarn;
  }
  rope.fail(field, "default, linear, llama3 or yarn");
}

/// `top` is the whole configuration, `fields` its object of scaling parameters.
void read_scaling_parameters(const JsonFields& top, const JsonFields& fields,
                             int max_position_embeddings, RopeConfig& rope) {
  rope.original_max_position =
      top.small_integer("original_max_position_embeddings")
          .value_or(fields.small_integer("original_max_position_embeddings")
                        .value_or(max_position_embeddings));
  const auto factor = fields.number("factor");
  if (factor) {
    rope.factor = *factor;
  } else if (rope.scaling == RopeScaling::kYarn && rope.original_max_position > 0) {
    rope.factor = static_cast<double>(max_position_embeddings) / rope.original_max_position;
  } else {
    fields.fail("factor", "given");
  }
  if (rope.scaling == RopeScaling::kLlama3) {
    const auto low = fields.number("low_freq_factor");
    const auto high = fields.number("high_freq_factor");
    if (!low || !high) {
      fields.fail(low ? "high_freq_factor" : "low_freq_factor", "given");
    }
    rope.low_freq_factor = *low;
    rope.high_freq_factor = *high;
  }
  if (rope.scaling == RopeScaling::kYarn) {
    rope.beta_fast = fields.number("beta_fast").value_or(rope.beta_fast);
    rope.beta_slow = fields.number("beta_slow").value_or(rope.beta_slow);
    rope.truncate = fields.boolean("truncate").value_or(true);
    rope.attention_factor = fields.number("attention_factor");
    rope.mscale = fields.number("mscale");
    rope.mscale_all_dim = fields.number("mscale_all_dim");
  }
}

RopeConfig read_rope(const JsonFields& top, const ModelConfig& config) {
  RopeConfig rope;
  rope.theta = top.number("rope_theta").value_or(rope.theta);
  double rotated_part = top.number("partial_rotary_factor").value_or(1.0);
  const auto parameters = top.object("rope_parameters");
  const auto scaling = parameters ? parameters : top.object("rope_scaling");
  if (scaling) {
    if (scaling->find("full_attention") || scaling->find("sliding_attention")) {
      top.fail("rope_parameters",
               fmt::format("one set for all layers for model_type {}", config.architecture));
    }
    rope.theta = scaling->number("rope_theta").value_or(rope.theta);
    rotated_part = scaling->number("partial_rotary_factor").value_or(rotated_part);
    rope.scaling = read_scaling(*scaling);
    if (rope.scaling != RopeScaling::kNone) {
      read_scaling_parameters(top, *scaling, config.max_position_embeddings, rope);
    }
  }
  if (!(rotated_part > 0.0 && rotated_part <= 1.0)) {
    top.fail("partial_rotary_factor", "above 0 and at most 1");
  }
  rope.rotary_dim = static_cast<int>(config.head_dim * rotated_part);
  return rope;
}

/// An id or a list of ids; nothing if absent.
std::vector<int> read_ids(const JsonFields& fields, std::string_view name) {
  const auto element = fields.find(name);
  std::vector<int> ids;
  if (!element) {
    return ids;
  }
  const auto add = [&](json::element value) {
    std::int64_t id = 0;
    if (value.get(id) != simdjson::SUCCESS || id < 0 || id > std::numeric_limits<int>::max()) {
      fields.fail(name, "a token id or a list of them");
    }
    ids.push_back(static_cast<int>(id));
  };
  if (element->is_array()) {
    for (const json::element value : json::array(*element)) {
      add(value);
    }
  } else {
    add(*element);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

void read_extents(const JsonFields& fields, ModelConfig& config) {
  config.hidden_size = require_int(fields, "hidden_size");
  config.num_layers = require_int(fields, "num_hidden_layers");
  config.num_heads = require_int(fields, "num_attention_heads");
  config.intermediate_size = require_int(fields, "intermediate_size");
  config.vocab_size = require_int(fields, "vocab_size");
  const bool is_mistral = config.architecture == "mistral";
  config.num_kv_heads =
      fields.small_integer("num_key_value_heads").value_or(is_mistral ? 8 : config.num_heads);
  config.max_position_embeddings =
      fields.small_integer("max_position_embeddings").value_or(is_mistral ? 4096 * 32 : 2048);
  const auto head_dim = fields.small_integer("head_dim");
  if (head_dim) {
    config.head_dim = *head_dim;
  } else if (config.num_heads > 0 && config.hidden_size % config.num_heads == 0) {
    config.head_dim = config.hidden_size / config.num_heads;
  } else {
    fields.fail("num_attention_heads", fmt::format("a divisor of hidden_size {} where head_dim is "
                                                   "not given",
                                                   config.hidden_size));
  }
}

}  // namespace

ModelConfig parse_hugging_face_config(std::string_view text, std::string_view source) {
  const JsonDocument document(text, std::string(source));
  const JsonFields fields = document.fields();
  ModelConfig config;
  config.architecture = read_architecture(fields);
  if (fields.find("quantization_config")) {
    fields.fail("quantization_config", "absent (weights of float32, float16 or bfloat16)");
  }
  read_extents(fields, config);
  config.rms_norm_epsilon = fields.number("rms_norm_eps").value_or(1e-6);
  config.activation = read_activation(fields);
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings").value_or(false);
  if (config.architecture == "llama") {  // Mistral has no biases, whatever its file says
    config.attention_bias = fields.boolean("attention_bias").value_or(false);
    config.output_bias = config.attention_bias;
    config.mlp_bias = fields.boolean("mlp_bias").value_or(false);
  }
  config.sliding_windows = read_windows(fields, config);
  config.rope = read_rope(fields, config);
  const std::vector<int> bos = read_ids(fields, "bos_token_id");
  if (!bos.empty()) {
    config.bos_id = bos.front();
  }
  config.eos_ids = read_ids(fields, "eos_token_id");
  validate(config, source);
  return config;
}

void apply_generation_config(std::string_view text, std::string_view source, ModelConfig& config) {
  const JsonDocument document(text, std::string(source));
  const JsonFields fields = document.fields();
  if (fields.find("eos_token_id")) {
    config.eos_ids = read_ids(fields, "eos_token_id");
  }
  GenerationDefaults& defaults = config.generation;
  defaults.temperature = fields.number("temperature");
  defaults.top_p = fields.number("top_p");
  defaults.top_k = fields.small_integer("top_k");
  defaults.min_p = fields.number("min_p");
  defaults.repetition_penalty = fields.number("repetition_penalty");
  const auto require = [&](bool holds, std::string_view name, std::string_view expected) {
    if (!holds) {
      fields.fail(name, expected);
    }
  };
  require(defaults.temperature.value_or(1) >= 0, "temperature", "at least 0");
  require(defaults.top_p.value_or(1) > 0 && defaults.top_p.value_or(1) <= 1, "top_p",
          "above 0 and at most 1");
  require(defaults.top_k.value_or(0) >= -1, "top_k", "-1, 0 or positive");
  require(defaults.min_p.value_or(0) >= 0 && defaults.min_p.value_or(0) <= 1, "min_p",
          "between 0 and 1");
  require(defaults.repetition_penalty.value_or(1) > 0, "repetition_penalty", "positive");
  validate(config, source);
}

}  // namespace rigel
