#pragma once

#include "server/template_renderer.h"
#include "server/text_codec.h"
#include "text/tokenizer.h"

#include <memory>
#include <optional>
#include <string>

namespace rigel::server {

/// The text side of a loaded model; either part may be missing.
class ModelCodec final : public TextCodec {
 public:
  /// `spec`: nothing where the model's files hold no tokenizer. Throws text::TextError on a tokenizer or template that this
  /// build does not understand.
  explicit ModelCodec(std::optional<text::TokenizerSpec> spec);

  /// Null if the model has none.
  [[nodiscard]] const text::Tokenizer* tokenizer() const {
    return tokenizer_ ? &*tokenizer_ : nullptr;
  }
  [[nodiscard]] const TemplateRenderer* renderer() const {
    return renderer_ ? &*renderer_ : nullptr;
  }

  [[nodiscard]] bool has_tokenizer() const override { return tokenizer_.has_value(); }
  [[nodiscard]] bool has_chat_template() const override { return renderer_.has_value(); }
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, bool add_special,
                                                 bool parse_special) const override;
  [[nodiscard]] std::vector<std::string> pieces(std::span<const std::int32_t> ids,
                                                bool skip_special) const override;
  [[nodiscard]] std::string token_bytes(std::int32_t id) const override;
  [[nodiscard]] std::string render(const ChatPrompt& chat) const override;

 private:
  std::optional<text::Tokenizer> tokenizer_;
  std::optional<TemplateRenderer> renderer_;
};

}  // namespace rigel::server
