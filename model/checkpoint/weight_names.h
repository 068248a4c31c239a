#pragma once

#include "model/checkpoint/checkpoint.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace rigel {

/// The weights of a decoder-only transformer. Matrices are (outputs, inputs); see weight_shape() for extents.
enum class WeightKind : std::uint8_t {
  kEmbedding,
  kFinalNorm,
  kLmHead,
  kAttentionNorm,  // the first one of a layer
  kQ,
  kK,
  kV,
  kO,
  kQBias,
  kKBias,
  kVBias,
  kOBias,
  kQNorm,
  kKNorm,
  kMlpNorm,
  kGate,
  kUp,
  kDown,
  kGateBias,
  kUpBias,
  kDownBias,  // the last one
};

/// Whether there is one per layer.
[[nodiscard]] constexpr bool is_layer_weight(WeightKind kind) {
  return kind >= WeightKind::kAttentionNorm;
}

/// Layer of weights that belong to none.
inline constexpr int kNoLayer = -1;

/// Rigel's own name, for messages and reports: "embedding.weight", "layers.3.attention.q.weight".
[[nodiscard]] std::string canonical_name(WeightKind kind, int layer);

/// The name in a checkpoint: "blk.3.attn_q.weight" (GGUF), "model.layers.3.self_attn.q_proj.weight" (Hugging Face).
[[nodiscard]] std::string source_name(CheckpointFormat format, WeightKind kind, int layer);

/// Tensors that are no weights and may lie in a checkpoint unread: rotary tables ("rope_freqs.weight", "...rotary_emb.inv_freq").
[[nodiscard]] bool is_derived_tensor(CheckpointFormat format, std::string_view name);

}  // namespace rigel
