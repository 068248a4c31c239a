#pragma once

// A composite model around the real language model: an encoder makes its embeddings, and a sink in another partition takes its
// tokens out of a stream.

#include "model/language_model_loader.h"
#include "worker/composite_model.h"

#include <cstdint>
#include <string>

namespace rigel::testing {

/// How a prompt comes to the language model.
enum class LlmPrompt : std::uint8_t {
  kEmbeddings,  // whole, as embeddings
  kBoth,        // a first part as embeddings, then a part as token ids
};

struct LlmComposite {
  CompositeModel model;
  std::int32_t max_length = 0;
  KvCache* kv_cache = nullptr;
};

/// The label under which the language model runs prompts and decode lanes in one step.
inline constexpr const char* kCombinedLabel = "mixed";

/// Its walks run together under `label`; empty: each step is of one walk. Requests bring "tokens" of "encoder" and, with kBoth, "text_inputs" of "LLM"; they get each "new_token", and "heard": the tokens
/// that the sink got, by chunks of three.
[[nodiscard]] LlmComposite make_llm_composite(Device& device, const ModelFiles& files,
                                              LanguageModelOptions options, LlmPrompt prompt,
                                              const std::string& label = kCombinedLabel);

}  // namespace rigel::testing
