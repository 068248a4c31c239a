#pragma once

#include "model/walk/definition.h"
#include "model/walk/program.h"

namespace rigel {

/// The dataflow of a language model: the walk "prefill" takes a prompt and gives its first token, then "decode" loops: each token
/// goes back as the next step's input, on the device, and to the client. How long the loop runs is each request's own.
[[nodiscard]] walk::Definition language_model_definition();

/// Gives a language model's nodes, walks, loop and signals the ids of LanguageModelNames. A composite model with a language model
/// calls it first, on empty tables; its partition, walks and loop then go by the names "text", "prefill", "decode" and
/// "decode_loop", its signals by "text_inputs", "embeddings" and "new_token". Where it combines those walks
/// (walk::CombinedWalks) the label is "mixed".
void intern_language_model(walk::Names& names);

/// The definition above, compiled. Its ids are those of LanguageModelNames.
[[nodiscard]] walk::Program compile_language_model();

}  // namespace rigel
