#pragma once

// Included by few .cc files only: simdjson is a heavy header.

#include "model/json_fields.h"

#include <string>

namespace rigel {

/// The name (smollm, gpt-2, llama-bpe, qwen2: golden rules in text/) of the pre-tokenizer and normalizer that a tokenizer.json
/// defines. `root` is the file's root. Throws ModelFileError, showing the definition, if it is none of these: another cut would
/// give other ids, silently.
[[nodiscard]] std::string recognise_pre_tokenizer(const JsonFields& root);

}  // namespace rigel
