#pragma once

#include "text/tokenizer_spec.h"

#include <optional>
#include <string>
#include <string_view>

namespace rigel::text::testing {

/// The tokenizer of a GGUF file, read by a minimal parser of its metadata. For tests of this room only, which may
/// not use the loader of model/. Throws std::runtime_error on a file that cannot be read.
TokenizerSpec read_gguf_vocabulary(const std::string& path);

/// Where the vocabulary of a golden tokenizer (smollm2, gpt-2, ...) lies; nothing if it is not on this machine.
std::optional<std::string> find_vocabulary(std::string_view tokenizer);

}  // namespace rigel::text::testing
