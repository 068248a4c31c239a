#pragma once

#include "model/walk/definition.h"
#include "model/walk/program.h"

namespace rigel {

/// The dataflow of a language model: the walk "prefill" takes a prompt and gives its first token, then "decode" loops: each token
/// goes back as the next step's input, on the device, and to the client. How long the loop runs is each request's own.
[[nodiscard]] walk::Definition language_model_definition();

/// The same, compiled. Its ids are those of LanguageModelNames.
[[nodiscard]] walk::Program compile_language_model();

}  // namespace rigel
