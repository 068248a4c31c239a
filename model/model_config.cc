#include "model/model_config.h"

#include <fmt/core.h>

#include <cmath>
#include <cstddef>

namespace rigel {
namespace {

constexpr int kMaxExtent = 1 << 28;  // far above any model, far below overflow of a product

void require_extent(std::string_view source, std::string_view field, int value,
                    int max_value = kMaxExtent) {
  if (value <= 0 || value > max_value) {
    throw ModelFileError(
        fmt::format("{}: {} must be between 1 and {}, got {}", source, field, max_value, value));
  }
}

void require_positive(std::string_view source, std::string_view field, double value) {
  if (!(value > 0.0) || !std::isfinite(value)) {
    throw ModelFileError(
        fmt::format("{}: {} must be positive and finite, got {}", source, field, value));
  }
}

void require_token(std::string_view source, std::string_view field, int id, int vocab_size) {
  if (id < 0 || id >= vocab_size) {
    throw ModelFileError(fmt::format("{}: {} must be a token id below vocab_size {}, got {}",
                                     source, field, vocab_size, id));
  }
}

void validate_rope(const ModelConfig& config, std::string_view source) {
  const RopeConfig& rope = config.rope;
  require_positive(source, "rope theta", rope.theta);
  require_positive(source, "rope factor", rope.factor);
  if (rope.rotary_dim <= 0 || rope.rotary_dim % 2 != 0 || rope.rotary_dim > config.head_dim) {
    throw ModelFileError(
        fmt::format("{}: the rotary dimension must be even and at most head_dim {}, got {}", source,
                    config.head_dim, rope.rotary_dim));
  }
  if (!rope.frequency_divisors.empty() &&
      rope.frequency_divisors.size() != static_cast<std::size_t>(rope.rotary_dim) / 2) {
    throw ModelFileError(fmt::format("{}: rope_freqs.weight must hold {} factors, got {}", source,
                                     rope.rotary_dim / 2, rope.frequency_divisors.size()));
  }
  for (const float divisor : rope.frequency_divisors) {
    require_positive(source, "a factor in rope_freqs.weight", divisor);
  }
  if (rope.scaling != RopeScaling::kLlama3 && rope.scaling != RopeScaling::kYarn) {
    return;
  }
  require_extent(source, "the rope scaling's original context", rope.original_max_position);
  if (rope.scaling == RopeScaling::kLlama3) {
    require_positive(source, "low_freq_factor", rope.low_freq_factor);
    if (!(rope.high_freq_factor > rope.low_freq_factor)) {
      throw ModelFileError(
          fmt::format("{}: high_freq_factor must be above low_freq_factor {}, got {}", source,
                      rope.low_freq_factor, rope.high_freq_factor));
    }
  } else {
    require_positive(source, "beta_fast", rope.beta_fast);
    require_positive(source, "beta_slow", rope.beta_slow);
    if (!(rope.theta > 1.0)) {
      throw ModelFileError(
          fmt::format("{}: yarn needs a rope theta above 1, got {}", source, rope.theta));
    }
  }
}

}  // namespace

std::string_view name_of(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return "silu";
    case Activation::kGeluTanh:
      return "gelu_tanh";
    case Activation::kGelu:
      return "gelu";
  }
  return "?";
}

std::string_view name_of(RopeScaling scaling) {
  switch (scaling) {
    case RopeScaling::kNone:
      return "none";
    case RopeScaling::kLinear:
      return "linear";
    case RopeScaling::kLlama3:
      return "llama3";
    case RopeScaling::kYarn:
      return "yarn";
  }
  return "?";
}

std::string_view supported_architectures() {
  return "llama, mistral";
}

void validate(const ModelConfig& config, std::string_view source) {
  require_extent(source, "hidden_size", config.hidden_size);
  require_extent(source, "the number of layers", config.num_layers, kMaxLayers);
  require_extent(source, "the number of attention heads", config.num_heads);
  require_extent(source, "the number of key-value heads", config.num_kv_heads);
  require_extent(source, "head_dim", config.head_dim);
  require_extent(source, "intermediate_size", config.intermediate_size);
  require_extent(source, "vocab_size", config.vocab_size);
  require_extent(source, "max_position_embeddings", config.max_position_embeddings);
  require_positive(source, "the RMS norm epsilon", config.rms_norm_epsilon);
  if (config.num_heads % config.num_kv_heads != 0) {
    throw ModelFileError(
        fmt::format("{}: the number of key-value heads must divide the {} attention heads, got {}",
                    source, config.num_heads, config.num_kv_heads));
  }
  if (config.sliding_windows.size() != static_cast<std::size_t>(config.num_layers)) {
    throw ModelFileError(fmt::format("{}: {} layers need as many attention types, got {}", source,
                                     config.num_layers, config.sliding_windows.size()));
  }
  for (const int window : config.sliding_windows) {
    if (window < 0) {
      throw ModelFileError(
          fmt::format("{}: sliding_window must be positive, got {}", source, window));
    }
  }
  if (config.bos_id) {
    require_token(source, "the beginning-of-sequence id", *config.bos_id, config.vocab_size);
  }
  for (const int id : config.eos_ids) {
    require_token(source, "an end-of-sequence id", id, config.vocab_size);
  }
  validate_rope(config, source);
}

}  // namespace rigel
