#pragma once

#include "model/model_config.h"

#include <vector>

namespace rigel {

/// Angle per position of each rotary pair: rotary_dim / 2 values, radians per token, computed in double precision.
///
/// RoPE: Su et al., arXiv:2104.09864, eq. 15. Linear: position interpolation, Chen et al., arXiv:2306.15595, eq. 4. Llama 3:
/// Meta's `apply_scaling` (Llama 3.1 model card). YaRN: Peng et al., arXiv:2309.00071, eqs. 17-23 ("NTK-by-parts").
/// `frequency_divisors` are applied last. Throws CheckError for an odd rotary_dim or divisors of another length.
[[nodiscard]] std::vector<float> rotary_inverse_frequencies(const RopeConfig& rope);

/// Factor on cosine and sine alike (so attention logits see its square): YaRN's sqrt(1/t) of eq. 22, 1 for all others.
[[nodiscard]] float rotary_attention_scale(const RopeConfig& rope);

}  // namespace rigel
