#pragma once

#include "model/model_file_error.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rigel {

/// More layers than any model has; keeps a damaged count from asking for memory.
inline constexpr int kMaxLayers = 4096;

/// Activation of the gated MLP: act(gate) * up.
enum class Activation : std::uint8_t { kSilu, kGeluTanh, kGelu };
[[nodiscard]] std::string_view name_of(Activation activation);

/// How rotary frequencies are stretched beyond the pretraining context.
enum class RopeScaling : std::uint8_t { kNone, kLinear, kLlama3, kYarn };
[[nodiscard]] std::string_view name_of(RopeScaling scaling);

/// Rotary position embedding. `rotary_inverse_frequencies` (model/rotary_frequencies.h) turns it into numbers.
struct RopeConfig {
  RopeScaling scaling = RopeScaling::kNone;
  double theta = 10000.0;
  int rotary_dim = 0;  ///< leading elements of a head that are rotated; even, <= head_dim
  bool interleaved =
      false;  ///< pairs are (2i, 2i+1), as GGUF llama weights are permuted; else (i, i + rotary_dim/2)
  double factor = 1.0;            ///< context extension: linear, llama3, yarn
  int original_max_position = 0;  ///< pretraining context, tokens: llama3, yarn

  double low_freq_factor = 1.0;   ///< llama3
  double high_freq_factor = 4.0;  ///< llama3

  double beta_fast = 32.0;  ///< yarn: rotations above which a frequency is kept
  double beta_slow = 1.0;   ///< yarn: rotations below which it is divided by `factor`
  bool truncate = true;     ///< yarn: the correction range is rounded outwards to whole dimensions
  std::optional<double> attention_factor =
      std::nullopt;  ///< yarn: given by the file; else computed from factor and the two below
  std::optional<double> mscale = std::nullopt;
  std::optional<double> mscale_all_dim = std::nullopt;

  /// rotary_dim / 2 divisors of the inverse frequencies, or empty. GGUF files of Llama 3.1 and later carry their scaling this
  /// way (tensor rope_freqs.weight) with `scaling` none.
  std::vector<float> frequency_divisors = {};
};

/// What generation_config.json suggests when a request leaves a field open.
struct GenerationDefaults {
  std::optional<double> temperature = std::nullopt;
  std::optional<double> top_p = std::nullopt;
  std::optional<int> top_k = std::nullopt;
  std::optional<double> min_p = std::nullopt;
  std::optional<double> repetition_penalty = std::nullopt;
};

/// A decoder-only language model's hyperparameters, whatever file they came from. Thread: any (immutable after load).
struct ModelConfig {
  std::string architecture;  ///< as the source names it: "llama", "mistral"
  int hidden_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;  ///< divides num_heads
  int head_dim = 0;      ///< num_heads * head_dim need not be hidden_size
  int intermediate_size = 0;
  int vocab_size = 0;
  int max_position_embeddings = 0;  ///< tokens
  double rms_norm_epsilon = 1e-6;
  Activation activation = Activation::kSilu;

  bool tie_word_embeddings = false;  ///< no lm_head tensor: the head is the embedding
  bool attention_bias = false;       ///< of q, k and v
  bool output_bias = false;          ///< of o
  bool mlp_bias = false;             ///< of gate, up and down
  bool qk_norm = false;              ///< RMS norm over each head of q and k

  /// One per layer: a query sees itself and the window - 1 tokens before it; 0 is full attention.
  std::vector<int> sliding_windows;
  std::optional<double> query_scale = std::nullopt;  ///< instead of 1 / sqrt(head_dim)
  std::optional<double> attention_logit_cap =
      std::nullopt;  ///< cap * tanh(x / cap) on attention logits
  std::optional<double> final_logit_cap = std::nullopt;  ///< the same on the model's logits
  double embedding_scale = 1.0;

  RopeConfig rope;

  std::optional<int> bos_id = std::nullopt;
  std::vector<int> eos_ids;  ///< any of them ends a generation; sorted, unique
  GenerationDefaults generation;
};

/// Architectures this build can run, for messages: "llama, mistral".
[[nodiscard]] std::string_view supported_architectures();

/// Checks that extents are positive and consistent (num_kv_heads divides num_heads, rotary_dim even and <= head_dim, one window a
/// layer, ...). `source` is the file named in the message. Throws ModelFileError.
void validate(const ModelConfig& config, std::string_view source);

}  // namespace rigel
