#include "model/synthetic_model.h"

#include "model/checkpoint/weight_names.h"
#include "model/checkpoint/weight_reader.h"

#include <algorithm>
#include <vector>

namespace rigel {

namespace {

/// Weights that are all zero, so all tensors share the bytes of the largest.
class ZeroCheckpoint final : public Checkpoint {
 public:
  explicit ZeroCheckpoint(const ModelConfig& config) : Checkpoint(CheckpointFormat::kHuggingFace) {
    using enum WeightKind;
    std::vector<CheckpointTensor> tensors;
    const auto add = [&](WeightKind kind, int layer) {
      CheckpointTensor& tensor = tensors.emplace_back();
      tensor.name = source_name(format(), kind, layer);
      tensor.shape = weight_shape(config, kind);
      tensor.type = SourceType::kBf16;
    };
    for (const WeightKind kind : {kEmbedding, kFinalNorm, kLmHead}) {
      add(kind, kNoLayer);
    }
    for (int layer = 0; layer < config.num_layers; ++layer) {
      for (const WeightKind kind : {kAttentionNorm, kQ, kK, kV, kO, kMlpNorm, kGate, kUp, kDown}) {
        add(kind, layer);
      }
    }
    const auto bytes_of = [](const CheckpointTensor& tensor) {
      return static_cast<std::size_t>(tensor.shape.num_elements()) * 2;
    };
    for (const CheckpointTensor& tensor : tensors) {
      zeros_.resize(std::max(zeros_.size(), bytes_of(tensor)));
    }
    for (CheckpointTensor& tensor : tensors) {
      tensor.bytes = std::span(zeros_).first(bytes_of(tensor));
    }
    adopt(std::move(tensors), "the synthetic model");
  }

 private:
  std::vector<std::byte> zeros_;
};

}  // namespace

ModelFiles synthetic_model_files(std::int32_t max_length) {
  ModelFiles files;
  files.name = "synthetic";
  ModelConfig& config = files.config;
  config.architecture = "llama";
  config.hidden_size = 32;
  config.num_layers = 1;
  config.num_heads = 1;
  config.num_kv_heads = 1;
  config.head_dim =
      8;  // a page is 512 bytes: a thousand rows of 128k tokens fit on a small machine
  config.intermediate_size = 32;
  config.vocab_size = 256;
  config.max_position_embeddings = max_length;
  config.sliding_windows = {0};
  config.rope.rotary_dim = config.head_dim;
  config.eos_ids = {};
  validate(config, "the synthetic model");
  files.checkpoint = std::make_unique<ZeroCheckpoint>(config);
  return files;
}

}  // namespace rigel
