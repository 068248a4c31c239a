#pragma once

#include "kernels/gemm.h"
#include "model/checkpoint/weight_reader.h"
#include "model/model_config.h"
#include "tensor/buffer.h"
#include "tensor/device.h"

#include <cstdint>
#include <vector>

namespace rigel {

/// The weights of one transformer block. Matrices are in the activation dtype; norms and biases are f32. An absent bias or
/// norm is an empty buffer.
struct LayerWeights {
  DeviceBuffer attention_norm;  // (C)
  kernels::GemmWeight qkv;      // ((H + 2 G) D, C): q, k and v, one below the other
  DeviceBuffer qkv_bias;        // ((H + 2 G) D)
  kernels::GemmWeight output;   // (C, H D)
  DeviceBuffer output_bias;     // (C)
  DeviceBuffer mlp_norm;        // (C)
  kernels::GemmWeight gate_up;  // (2 I, C): gate above up
  DeviceBuffer gate_up_bias;    // (2 I)
  kernels::GemmWeight down;     // (C, I)
  DeviceBuffer down_bias;       // (C)
};

/// A decoder-only transformer's weights on the device.
struct TransformerWeights {
  Dtype dtype = Dtype::kBf16;
  DeviceBuffer embedding;  // (V, C) in the activation dtype
  std::vector<LayerWeights> layers;
  DeviceBuffer final_norm;      // (C) f32
  kernels::GemmWeight lm_head;  // (V, C)

  /// Bytes on the device, with the padding that packing adds.
  [[nodiscard]] std::int64_t num_bytes() const;
};

/// Reads, converts and packs all weights. Throws ModelFileError naming a missing or misshapen tensor, or one that the model
/// does not know. Cost: one pass over the checkpoint.
[[nodiscard]] TransformerWeights load_transformer_weights(Device& device, kernels::Gemm& gemm,
                                                          const Checkpoint& checkpoint,
                                                          const ModelConfig& config, Dtype dtype,
                                                          LoadProgress* progress);

}  // namespace rigel
