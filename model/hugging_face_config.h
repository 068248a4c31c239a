#pragma once

#include "model/model_config.h"

#include <string_view>

namespace rigel {

/// Reads a config.json, old style (rope_theta, rope_scaling, sliding_window) or as transformers 5 writes it (rope_parameters,
/// layer_types). Missing fields take transformers' defaults. The result is validated. `source` is the file named in messages.
/// Throws ModelFileError: not JSON, a field of a wrong type, an unsupported architecture or feature.
[[nodiscard]] ModelConfig parse_hugging_face_config(std::string_view json, std::string_view source);

/// Overlays a generation_config.json: its end-of-sequence ids replace the configuration's, as they do in transformers.
void apply_generation_config(std::string_view json, std::string_view source, ModelConfig& config);

}  // namespace rigel
