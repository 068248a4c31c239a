#pragma once

#include "server/api/generation_call.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rigel::server {

/// A model's text side: its tokenizer and its chat template, as the server needs them.
/// Thread: any. Errors: text::TextError, its message fit for a caller's eyes.
class TextCodec {
 public:
  virtual ~TextCodec() = default;

  [[nodiscard]] virtual bool has_tokenizer() const = 0;
  [[nodiscard]] virtual bool has_chat_template() const = 0;

  [[nodiscard]] virtual std::vector<std::int32_t> encode(std::string_view text, bool add_special,
                                                         bool parse_special) const = 0;

  /// What the incremental detokenizer emits after each of `ids`; one piece more holds what it emits at the end.
  [[nodiscard]] virtual std::vector<std::string> pieces(std::span<const std::int32_t> ids,
                                                        bool skip_special) const = 0;

  /// The bytes of one token, special tokens included; need not be UTF-8.
  [[nodiscard]] virtual std::string token_bytes(std::int32_t id) const = 0;

  /// The prompt that the chat template makes of a conversation.
  [[nodiscard]] virtual std::string render(const ChatPrompt& chat) const = 0;
};

/// The pieces joined.
[[nodiscard]] std::string decode(const TextCodec& codec, std::span<const std::int32_t> ids,
                                 bool skip_special);

/// A model as callers see it. What it refers to must outlive it.
struct ServedModel {
  std::string name;
  std::int64_t created = 0;  // seconds since 1970
  const TextCodec& text;
  InferenceService& service;
};

}  // namespace rigel::server
