#pragma once

#include "model/model_files.h"

#include <cstdint>

namespace rigel {

/// A language model without a file, for measurements of what surrounds it: a transformer of Llama's kind, as small as one can be
/// (one layer, one head, a vocabulary of 256), whose weights are zeros. Every token it samples greedily is 0.
[[nodiscard]] ModelFiles synthetic_model_files(std::int32_t max_length);

}  // namespace rigel
