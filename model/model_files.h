#pragma once

#include "model/checkpoint/checkpoint.h"
#include "model/model_config.h"
#include "text/tokenizer_spec.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace rigel {

/// Everything that a model's files say. The tokenizer is absent where a directory has none.
struct ModelFiles {
  std::string name;  ///< general.name of a GGUF file, else the file's or directory's name
  ModelConfig config;
  std::unique_ptr<Checkpoint> checkpoint;
  std::optional<text::TokenizerSpec> tokenizer;
};

/// Opens a GGUF file or a Hugging Face directory (config.json, *.safetensors). Reads headers only; weights stay mapped.
/// Throws ModelFileError: path missing, neither kind of model, damaged header, unsupported architecture or feature.
[[nodiscard]] ModelFiles open_model_files(const std::filesystem::path& path);

/// The tokenizer alone, of a GGUF file of any architecture (one that holds a vocabulary and no weights, too) or a Hugging Face
/// directory; nothing if there is none. Throws ModelFileError.
[[nodiscard]] std::optional<text::TokenizerSpec> open_tokenizer(const std::filesystem::path& path);

}  // namespace rigel
