#pragma once

#include "model/checkpoint/gguf.h"
#include "model/model_config.h"

namespace rigel {

/// The configuration in a GGUF file's metadata. What the metadata leaves out is read off the tensors: biases, a missing output
/// matrix (tied), Llama 3's rotary divisors (rope_freqs.weight). The result is validated.
/// Throws ModelFileError: an unsupported architecture or feature, a key missing or of a wrong type.
[[nodiscard]] ModelConfig gguf_model_config(const GgufCheckpoint& checkpoint);

}  // namespace rigel
