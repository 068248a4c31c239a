#include "model/checkpoint/weight_names.h"

#include "tensor/error.h"

#include <fmt/core.h>

#include <array>

namespace rigel {
namespace {

/// One weight in three vocabularies; the layer's prefix is not part of it.
struct Spellings {
  WeightKind kind;
  std::string_view canonical;
  std::string_view gguf;
  std::string_view hugging_face;
};

// By WeightKind.
constexpr std::array kNames = {
    Spellings{WeightKind::kEmbedding, "embedding.weight", "token_embd.weight",
              "model.embed_tokens.weight"},
    Spellings{WeightKind::kFinalNorm, "final_norm.weight", "output_norm.weight",
              "model.norm.weight"},
    Spellings{WeightKind::kLmHead, "lm_head.weight", "output.weight", "lm_head.weight"},
    Spellings{WeightKind::kAttentionNorm, "attention_norm.weight", "attn_norm.weight",
              "input_layernorm.weight"},
    Spellings{WeightKind::kQ, "attention.q.weight", "attn_q.weight", "self_attn.q_proj.weight"},
    Spellings{WeightKind::kK, "attention.k.weight", "attn_k.weight", "self_attn.k_proj.weight"},
    Spellings{WeightKind::kV, "attention.v.weight", "attn_v.weight", "self_attn.v_proj.weight"},
    Spellings{WeightKind::kO, "attention.o.weight", "attn_output.weight",
              "self_attn.o_proj.weight"},
    Spellings{WeightKind::kQBias, "attention.q.bias", "attn_q.bias", "self_attn.q_proj.bias"},
    Spellings{WeightKind::kKBias, "attention.k.bias", "attn_k.bias", "self_attn.k_proj.bias"},
    Spellings{WeightKind::kVBias, "attention.v.bias", "attn_v.bias", "self_attn.v_proj.bias"},
    Spellings{WeightKind::kOBias, "attention.o.bias", "attn_output.bias", "self_attn.o_proj.bias"},
    Spellings{WeightKind::kQNorm, "attention.q_norm.weight", "attn_q_norm.weight",
              "self_attn.q_norm.weight"},
    Spellings{WeightKind::kKNorm, "attention.k_norm.weight", "attn_k_norm.weight",
              "self_attn.k_norm.weight"},
    Spellings{WeightKind::kMlpNorm, "mlp_norm.weight", "ffn_norm.weight",
              "post_attention_layernorm.weight"},
    Spellings{WeightKind::kGate, "mlp.gate.weight", "ffn_gate.weight", "mlp.gate_proj.weight"},
    Spellings{WeightKind::kUp, "mlp.up.weight", "ffn_up.weight", "mlp.up_proj.weight"},
    Spellings{WeightKind::kDown, "mlp.down.weight", "ffn_down.weight", "mlp.down_proj.weight"},
    Spellings{WeightKind::kGateBias, "mlp.gate.bias", "ffn_gate.bias", "mlp.gate_proj.bias"},
    Spellings{WeightKind::kUpBias, "mlp.up.bias", "ffn_up.bias", "mlp.up_proj.bias"},
    Spellings{WeightKind::kDownBias, "mlp.down.bias", "ffn_down.bias", "mlp.down_proj.bias"},
};

constexpr bool is_in_order() {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (static_cast<std::size_t>(kNames[i].kind) != i) {
      return false;
    }
  }
  return kNames.size() == static_cast<std::size_t>(WeightKind::kDownBias) + 1;
}
static_assert(is_in_order());

const Spellings& names_of(WeightKind kind, int layer) {
  RIGEL_CHECK(is_layer_weight(kind) ? layer >= 0 : layer == kNoLayer,
              "a layer's weight needs its layer, others none, got {}", layer);
  return kNames[static_cast<std::size_t>(kind)];
}

}  // namespace

std::string canonical_name(WeightKind kind, int layer) {
  const Spellings& names = names_of(kind, layer);
  return is_layer_weight(kind) ? fmt::format("layers.{}.{}", layer, names.canonical)
                               : std::string(names.canonical);
}

std::string source_name(CheckpointFormat format, WeightKind kind, int layer) {
  const Spellings& names = names_of(kind, layer);
  const bool is_gguf = format == CheckpointFormat::kGguf;
  const std::string_view name = is_gguf ? names.gguf : names.hugging_face;
  if (!is_layer_weight(kind)) {
    return std::string(name);
  }
  return fmt::format("{}.{}.{}", is_gguf ? "blk" : "model.layers", layer, name);
}

bool is_derived_tensor(CheckpointFormat format, std::string_view name) {
  if (format == CheckpointFormat::kGguf) {
    return name == "rope_freqs.weight";
  }
  return name.ends_with(".rotary_emb.inv_freq");
}

}  // namespace rigel
