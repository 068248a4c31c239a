#pragma once

#include "server/api/echoed_prompt.h"
#include "server/api/error.h"
#include "server/api/generation_call.h"
#include "server/text_codec.h"
#include "worker/request.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace rigel::server {

/// What every body and chunk of one answer begins with.
struct AnswerHead {
  CallKind kind = CallKind::kCompletion;  // kCompletion or kChat
  std::string id;
  std::int64_t created = 0;  // seconds since 1970
  std::string model;
};

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::int64_t cached_tokens = 0;
};

/// One choice of an answer: the whole of it in a body, what is new in a chunk.
struct ChoiceText {
  int index = 0;
  std::string_view text = {};
  std::span<const GeneratedToken> tokens = {};
  const EchoedPrompt* prompt = nullptr;  // listed before `tokens` where log-probabilities are
  bool with_logprobs = false;
  std::size_t text_offset = 0;  // code points of this choice before `text`
  std::optional<FinishReason> finish = {};
  std::string_view stop_string = {};
  std::optional<std::int32_t> stop_token = {};  // of the caller's stop_token_ids
};

/// Pure functions that spell answers. Bodies and chunks are JSON; an event is a chunk as a server-sent event.
[[nodiscard]] std::string answer_body(const AnswerHead& head, std::span<const ChoiceText> choices,
                                      const Usage& usage, const TextCodec& codec);

/// The chunk that opens a choice of a chat: it says whose turn it is.
[[nodiscard]] std::string role_chunk(const AnswerHead& head, int index, bool with_usage_field);

/// `with_usage_field`: chunks say "usage": null where a last chunk will tell the usage.
[[nodiscard]] std::string answer_chunk(const AnswerHead& head, const ChoiceText& choice,
                                       bool with_usage_field, const TextCodec& codec);

/// The last chunk where usage was asked for: no choices.
[[nodiscard]] std::string usage_chunk(const AnswerHead& head, const Usage& usage);

/// Of UTF-8 text.
[[nodiscard]] std::size_t num_code_points(std::string_view text);

/// "data: CHUNK\n\n".
[[nodiscard]] std::string server_sent_event(std::string_view chunk);

}  // namespace rigel::server
