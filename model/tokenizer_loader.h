#pragma once

#include "model/checkpoint/gguf.h"
#include "text/tokenizer_spec.h"

#include <filesystem>
#include <optional>

namespace rigel {

/// The tokenizer in a GGUF file's metadata (tokenizer.ggml.*), or nothing if there is none ("tokenizer.ggml.model" missing or
/// "none"). Throws ModelFileError: an unsupported model or pre-tokenizer, lists of different lengths, ids out of range.
[[nodiscard]] std::optional<text::TokenizerSpec> load_tokenizer(const GgufMetadata& metadata);

/// The tokenizer of a Hugging Face directory: tokenizer.json, tokenizer_config.json (special tokens, chat template) and
/// chat_template.jinja; nothing if it has no tokenizer.json. The pre-tokenizer is recognised by its definition; one that is not
/// known throws ModelFileError, as guessing would give wrong ids.
[[nodiscard]] std::optional<text::TokenizerSpec> load_tokenizer(
    const std::filesystem::path& directory);

}  // namespace rigel
