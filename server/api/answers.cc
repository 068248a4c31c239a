#include "server/api/answers.h"

#include "server/api/json_writer.h"
#include "text/utf8.h"

#include <fmt/core.h>

#include <algorithm>

namespace rigel::server {
namespace {

// JSON has no minus infinity; OpenAI's interface says "impossible" with this number.
constexpr float kLowestLogprob = -9999.0f;

float sayable(float logprob) {
  return logprob > kLowestLogprob ? logprob : kLowestLogprob;
}

bool is_utf8(std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size();) {
    const text::DecodedCharacter character = text::decode_character(bytes, i);
    if (!character.is_valid) {
      return false;
    }
    i += character.num_bytes;
  }
  return true;
}

/// A token's text; bytes that are no text by themselves are spelt "bytes:\xf0\x9f" so that names stay different. Without a
/// tokenizer a token is called by its id, as vLLM does where it is asked to.
std::string token_name(std::int32_t id, const TextCodec& codec) {
  if (!codec.has_tokenizer()) {
    return fmt::format("token_id:{}", id);
  }
  const std::string bytes = codec.token_bytes(id);
  if (is_utf8(bytes)) {
    return bytes;
  }
  std::string name = "bytes:";
  for (const char byte : bytes) {
    name += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  }
  return name;
}

/// Calls `write` with each token of a choice, those of an echoed prompt first.
template <typename Write>
void for_each_token(const ChoiceText& choice, const Write& write) {
  if (choice.prompt != nullptr) {
    for (const GeneratedToken& token : choice.prompt->tokens) {
      write(token);
    }
  }
  for (const GeneratedToken& token : choice.tokens) {
    write(token);
  }
}

void write_top_logprobs(JsonWriter& json, const GeneratedToken& token, const TextCodec& codec) {
  if (token.logprobs.empty()) {
    json.value(nullptr);
    return;
  }
  json.begin_object();
  for (auto it = token.logprobs.begin(); it != token.logprobs.end(); ++it) {
    const bool is_chosen_again = it != token.logprobs.begin() &&
                                 it->id == token.logprobs.front().id;  // a key must not come twice
    if (!is_chosen_again) {
      json.field(token_name(it->id, codec), sayable(it->logprob));
    }
  }
  json.end_object();
}

/// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}: four lists, one entry a token.
void write_completion_logprobs(JsonWriter& json, const ChoiceText& choice, const TextCodec& codec) {
  json.begin_object().key("tokens").begin_array();
  for_each_token(choice,
                 [&](const GeneratedToken& token) { json.value(token_name(token.id, codec)); });
  json.end_array().key("token_logprobs").begin_array();
  for_each_token(choice, [&](const GeneratedToken& token) {
    token.logprobs.empty() ? json.value(nullptr)
                           : json.value(sayable(token.logprobs.front().logprob));
  });
  json.end_array().key("top_logprobs").begin_array();
  for_each_token(choice,
                 [&](const GeneratedToken& token) { write_top_logprobs(json, token, codec); });
  json.end_array().key("text_offset").begin_array();
  if (choice.prompt != nullptr) {
    for (const std::size_t offset : choice.prompt->text_offsets) {
      json.value(static_cast<std::uint64_t>(offset));
    }
  }
  std::size_t offset = choice.text_offset;
  for (const GeneratedToken& token : choice.tokens) {
    json.value(static_cast<std::uint64_t>(offset));
    offset += num_code_points(codec.token_bytes(token.id));
  }
  json.end_array().end_object();
}

void write_chat_token(JsonWriter& json, const TokenLogprob& token, const TextCodec& codec) {
  const std::string bytes = codec.token_bytes(token.id);
  json.field("token", token_name(token.id, codec))
      .field("logprob", sayable(token.logprob))
      .key("bytes")
      .begin_array();
  for (const char byte : bytes) {
    json.value(static_cast<int>(static_cast<unsigned char>(byte)));
  }
  json.end_array();
}

/// {"content": [{"token", "logprob", "bytes", "top_logprobs"}]}.
void write_chat_logprobs(JsonWriter& json, const ChoiceText& choice, const TextCodec& codec) {
  json.begin_object().key("content").begin_array();
  for (const GeneratedToken& token : choice.tokens) {
    if (token.logprobs.empty()) {
      continue;
    }
    json.begin_object();
    write_chat_token(json, token.logprobs.front(), codec);
    json.key("top_logprobs").begin_array();
    for (std::size_t i = 1; i < token.logprobs.size(); ++i) {
      json.begin_object();
      write_chat_token(json, token.logprobs[i], codec);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().end_object();
}

void write_head(JsonWriter& json, const AnswerHead& head, std::string_view object) {
  json.field("id", head.id)
      .field("object", object)
      .field("created", head.created)
      .field("model", head.model);
}

void write_usage(JsonWriter& json, const Usage& usage) {
  json.begin_object()
      .field("prompt_tokens", usage.prompt_tokens)
      .field("total_tokens", usage.prompt_tokens + usage.completion_tokens)
      .field("completion_tokens", usage.completion_tokens)
      .key("prompt_tokens_details")
      .begin_object()
      .field("cached_tokens", usage.cached_tokens)
      .end_object()
      .end_object();
}

/// What follows a choice's text: log-probabilities and why it ended. A reason that is not there yet is null, never "".
void write_choice_end(JsonWriter& json, const AnswerHead& head, const ChoiceText& choice,
                      const TextCodec& codec) {
  json.key("logprobs");
  if (!choice.with_logprobs || choice.tokens.empty()) {
    json.value(nullptr);
  } else if (head.kind == CallKind::kChat) {
    write_chat_logprobs(json, choice, codec);
  } else {
    write_completion_logprobs(json, choice, codec);
  }
  json.key("finish_reason");
  choice.finish ? json.value(name_of(*choice.finish)) : json.value(nullptr);
  json.key("stop_reason");
  if (!choice.stop_string.empty()) {
    json.value(choice.stop_string);
  } else {
    choice.stop_token ? json.value(*choice.stop_token) : json.value(nullptr);
  }
}

std::string_view body_object(CallKind kind) {
  return kind == CallKind::kChat ? "chat.completion" : "text_completion";
}

std::string_view chunk_object(CallKind kind) {
  return kind == CallKind::kChat ? "chat.completion.chunk" : "text_completion";
}

}  // namespace

std::string answer_body(const AnswerHead& head, std::span<const ChoiceText> choices,
                        const Usage& usage, const TextCodec& codec) {
  JsonWriter json;
  json.begin_object();
  write_head(json, head, body_object(head.kind));
  json.key("choices").begin_array();
  for (const ChoiceText& choice : choices) {
    json.begin_object().field("index", choice.index);
    if (head.kind == CallKind::kChat) {
      json.key("message")
          .begin_object()
          .field("role", "assistant")
          .field("content", choice.text)
          .end_object();
    } else {
      json.field("text", choice.text);
    }
    write_choice_end(json, head, choice, codec);
    json.end_object();
  }
  json.end_array().key("usage");
  write_usage(json, usage);
  json.end_object();
  return json.take();
}

std::string role_chunk(const AnswerHead& head, int index, bool with_usage_field) {
  JsonWriter json;
  json.begin_object();
  write_head(json, head, chunk_object(head.kind));
  json.key("choices").begin_array().begin_object().field("index", index);
  json.key("delta").begin_object().field("role", "assistant").field("content", "").end_object();
  json.field("logprobs", nullptr).field("finish_reason", nullptr).end_object().end_array();
  if (with_usage_field) {
    json.field("usage", nullptr);
  }
  json.end_object();
  return json.take();
}

std::string answer_chunk(const AnswerHead& head, const ChoiceText& choice, bool with_usage_field,
                         const TextCodec& codec) {
  JsonWriter json;
  json.begin_object();
  write_head(json, head, chunk_object(head.kind));
  json.key("choices").begin_array().begin_object().field("index", choice.index);
  if (head.kind == CallKind::kChat) {
    json.key("delta").begin_object();
    if (!choice.text.empty()) {
      json.field("content", choice.text);
    }
    json.end_object();
  } else {
    json.field("text", choice.text);
  }
  write_choice_end(json, head, choice, codec);
  json.end_object().end_array();
  if (with_usage_field) {
    json.field("usage", nullptr);
  }
  json.end_object();
  return json.take();
}

std::string usage_chunk(const AnswerHead& head, const Usage& usage) {
  JsonWriter json;
  json.begin_object();
  write_head(json, head, chunk_object(head.kind));
  json.key("choices").begin_array().end_array().key("usage");
  write_usage(json, usage);
  json.end_object();
  return json.take();
}

std::size_t num_code_points(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string server_sent_event(std::string_view chunk) {
  return fmt::format("data: {}\n\n", chunk);
}

}  // namespace rigel::server
