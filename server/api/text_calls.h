#pragma once

#include "server/api/error.h"
#include "server/api/generation_call.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rigel::server {

/// Text or a conversation to be turned into ids.
struct TokenizeCall {
  std::string model;
  Prompt prompt;  // text or a chat
  bool add_special = true;
  bool parse_special = false;
  std::vector<std::string> unknown_fields;  // ignored
};

struct DetokenizeCall {
  std::string model;
  std::vector<std::int32_t> ids;
  bool skip_special = false;
  std::vector<std::string> unknown_fields;  // ignored
};

/// Text whose log-probabilities are wanted.
struct ScoreCall {
  Prompt prompt;                            // ids or text
  std::vector<std::string> unknown_fields;  // ignored
};

/// A conversation for a chat template, taken as it is.
struct RenderCall {
  ChatPrompt chat;
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::optional<std::string> now;           // ISO time that strftime_now sees
  std::vector<std::string> unknown_fields;  // ignored
};

/// Bodies of /tokenize and /detokenize: vLLM's field names. Errors as parse_generation_call.
[[nodiscard]] Parsed<TokenizeCall> parse_tokenize_body(std::string_view text);
[[nodiscard]] Parsed<DetokenizeCall> parse_detokenize_body(std::string_view text, int vocab_size);

/// Lines of the --jsonl commands.
[[nodiscard]] Parsed<TokenizeCall> parse_tokenize_line(std::string_view text);
[[nodiscard]] Parsed<DetokenizeCall> parse_detokenize_line(std::string_view text);
[[nodiscard]] Parsed<ScoreCall> parse_score_line(std::string_view text, int vocab_size);
[[nodiscard]] Parsed<RenderCall> parse_render_line(std::string_view text);

}  // namespace rigel::server
