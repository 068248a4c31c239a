#pragma once

#include "server/api/error.h"
#include "worker/request.h"
#include "worker/service.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace rigel::server {

/// A conversation, kept as JSON text: only the chat template looks inside.
struct ChatPrompt {
  std::string messages_json;   // an array; every content is a string or null
  std::string tools_json;      // an array; empty: none
  std::string documents_json;  // an array; empty: none
  std::string kwargs_json;     // an object with further variables; empty: none
  bool add_generation_prompt = true;

  bool operator==(const ChatPrompt&) const = default;
};

/// What a caller may give to be continued.
using Prompt = std::variant<std::string, std::vector<std::int32_t>, ChatPrompt>;

/// Where a call came from decides its required fields, its defaults and the form of its answer.
enum class CallKind : std::uint8_t { kCompletion, kChat, kLine };

/// A checked call for generated text: /v1/completions, /v1/chat/completions or a line of `generate --jsonl`.
struct GenerationCall {
  CallKind kind = CallKind::kCompletion;
  std::string model;            // as the caller wrote it; empty: not given
  std::vector<Prompt> prompts;  // at least one
  SamplingParams sampling;
  bool max_tokens_given = false;  // else a chat may fill the context
  int num_choices = 1;            // `n`: answers to each prompt
  bool add_special_tokens = true;
  bool stream = false;
  bool include_usage = false;
  bool echo = false;                        // completions: the prompt's text comes first
  std::vector<std::string> unknown_fields;  // ignored
};

/// Reads and checks a call. Pure; `text` is one JSON object; any text is safe to pass.
/// Errors: 400 with the field's name, its value and what is allowed. Cost: one pass over the text.
[[nodiscard]] Parsed<GenerationCall> parse_generation_call(CallKind kind, std::string_view text,
                                                           const ServiceLimits& limits);

}  // namespace rigel::server
