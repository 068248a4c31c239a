#include "model/transformer_weights.h"

#include "model/model_file_error.h"
#include "tensor/copy.h"
#include "tensor/stream.h"

#include <algorithm>
#include <initializer_list>
#include <numeric>

namespace rigel {

namespace {

/// Host memory of one piece of a matrix on its way to the device.
constexpr std::int64_t kPieceBytes = std::int64_t{8} << 20;

class WeightLoader {
 public:
  WeightLoader(Device& device, kernels::Gemm& gemm, WeightReader& reader, const ModelConfig& config,
               Dtype dtype)
      : device_(device),
        gemm_(gemm),
        reader_(reader),
        config_(config),
        dtype_(dtype),
        stream_(device) {}

  /// Several matrices of one width, one below the other, packed for products.
  kernels::GemmWeight matrix(std::initializer_list<WeightKind> kinds, int layer) {
    std::int64_t num_rows = 0;
    for (const WeightKind kind : kinds) {
      num_rows += weight_shape(config_, kind)[0];
    }
    const std::int64_t num_columns = weight_shape(config_, *kinds.begin())[1];
    kernels::GemmWeightBuilder builder(gemm_, dtype_, num_rows, num_columns);
    std::int64_t first_row = 0;
    for (const WeightKind kind : kinds) {
      for_each_piece(kind, layer, [&](std::int64_t row, ConstHostView rows) {
        builder.add_rows(first_row + row, rows);
      });
      first_row += weight_shape(config_, kind)[0];
    }
    return builder.finish();
  }

  /// A matrix as it is, row-major.
  DeviceBuffer table(WeightKind kind) {
    const Shape shape = weight_shape(config_, kind);
    DeviceBuffer buffer(device_, dtype_, shape);
    const DeviceView view = buffer.view(dtype_, shape);
    for_each_piece(kind, kNoLayer, [&](std::int64_t row, ConstHostView rows) {
      copy(stream_, view.slice(0, row, rows.dim(0)), rows);
      stream_.synchronize();
    });
    return buffer;
  }

  /// Vectors in f32, one after the other; an empty buffer where `present` is false.
  DeviceBuffer vector(std::initializer_list<WeightKind> kinds, int layer, bool present) {
    if (!present) {
      return {};
    }
    std::int64_t size = 0;
    for (const WeightKind kind : kinds) {
      size += weight_shape(config_, kind)[0];
    }
    std::vector<float> values(static_cast<std::size_t>(size));
    std::int64_t offset = 0;
    for (const WeightKind kind : kinds) {
      const std::int64_t part = weight_shape(config_, kind)[0];
      reader_.read(kind, layer, host_view(std::span(values)).slice(0, offset, part));
      offset += part;
    }
    DeviceBuffer buffer(device_, Dtype::kF32, {size});
    copy(stream_, buffer.view(Dtype::kF32, {size}),
         const_host_view(std::span<const float>(values)));
    stream_.synchronize();
    return buffer;
  }

 private:
  template <class Use>
  void for_each_piece(WeightKind kind, int layer, const Use& use) {
    const CheckpointTensor& tensor = reader_.require(kind, layer);
    const std::int64_t num_columns = tensor.num_columns();
    const std::int64_t row_bytes = num_columns * static_cast<std::int64_t>(size_of(dtype_));
    const std::int64_t piece_rows = std::max<std::int64_t>(1, kPieceBytes / row_bytes);
    piece_.resize(static_cast<std::size_t>(piece_rows * row_bytes));
    for (std::int64_t row = 0; row < tensor.num_rows(); row += piece_rows) {
      const std::int64_t count = std::min(piece_rows, tensor.num_rows() - row);
      const HostView rows(piece_.data(), dtype_, {count, num_columns});
      reader_.read_rows(tensor, row, count, rows);
      use(row, rows);
    }
  }

  Device& device_;
  kernels::Gemm& gemm_;
  WeightReader& reader_;
  const ModelConfig& config_;
  Dtype dtype_;
  Stream stream_;
  std::vector<std::byte> piece_;
};

LayerWeights load_layer(WeightLoader& loader, const ModelConfig& config, int layer) {
  using enum WeightKind;
  LayerWeights weights;
  weights.attention_norm = loader.vector({kAttentionNorm}, layer, true);
  weights.qkv = loader.matrix({kQ, kK, kV}, layer);
  weights.qkv_bias = loader.vector({kQBias, kKBias, kVBias}, layer, config.attention_bias);
  weights.output = loader.matrix({kO}, layer);
  weights.output_bias = loader.vector({kOBias}, layer, config.output_bias);
  weights.mlp_norm = loader.vector({kMlpNorm}, layer, true);
  weights.gate_up = loader.matrix({kGate, kUp}, layer);
  weights.gate_up_bias = loader.vector({kGateBias, kUpBias}, layer, config.mlp_bias);
  weights.down = loader.matrix({kDown}, layer);
  weights.down_bias = loader.vector({kDownBias}, layer, config.mlp_bias);
  return weights;
}

}  // namespace

std::int64_t TransformerWeights::num_bytes() const {
  std::int64_t total = embedding.num_bytes() + final_norm.num_bytes() + lm_head.num_bytes();
  for (const LayerWeights& layer : layers) {
    for (const DeviceBuffer* vector : {&layer.attention_norm, &layer.qkv_bias, &layer.output_bias,
                                       &layer.mlp_norm, &layer.gate_up_bias, &layer.down_bias}) {
      total += vector->num_bytes();
    }
    for (const kernels::GemmWeight* matrix :
         {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) {
      total += matrix->num_bytes();
    }
  }
  return total;
}

TransformerWeights load_transformer_weights(Device& device, kernels::Gemm& gemm,
                                            const Checkpoint& checkpoint, const ModelConfig& config,
                                            Dtype dtype, LoadProgress* progress) {
  WeightReader reader(checkpoint, config, progress);
  WeightLoader loader(device, gemm, reader, config, dtype);
  TransformerWeights weights;
  weights.dtype = dtype;
  weights.embedding = loader.table(WeightKind::kEmbedding);
  for (int layer = 0; layer < config.num_layers; ++layer) {
    weights.layers.push_back(load_layer(loader, config, layer));
  }
  weights.final_norm = loader.vector({WeightKind::kFinalNorm}, kNoLayer, true);
  weights.lm_head = loader.matrix(
      {config.tie_word_embeddings ? WeightKind::kEmbedding : WeightKind::kLmHead}, kNoLayer);
  if (const std::vector<std::string> unused = reader.unused(); !unused.empty()) {
    throw ModelFileError("the checkpoint has " + std::to_string(unused.size()) +
                         " tensors that this architecture does not use, among them '" +
                         unused.front() + "': its model is not supported");
  }
  return weights;
}

}  // namespace rigel
