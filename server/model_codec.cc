#include "server/model_codec.h"

#include "text/detokenizer.h"
#include "text/text_error.h"

namespace rigel::server {
namespace {

/// A special token as a chat template writes it; empty if the model has none.
std::string token_text(const text::TokenizerSpec& spec, std::optional<std::int32_t> id) {
  return id ? spec.tokens.at(static_cast<std::size_t>(*id)) : std::string();
}

}  // namespace

ModelCodec::ModelCodec(std::optional<text::TokenizerSpec> spec) {
  if (!spec) {
    return;
  }
  tokenizer_.emplace(std::move(*spec));
  const text::TokenizerSpec& kept = tokenizer_->spec();
  if (!kept.chat_template.empty()) {
    renderer_.emplace(kept.chat_template, token_text(kept, kept.bos), token_text(kept, kept.eos));
  }
}

std::vector<std::int32_t> ModelCodec::encode(std::string_view text, bool add_special,
                                             bool parse_special) const {
  return tokenizer_.value().encode(text,
                                   {.add_special = add_special, .parse_special = parse_special});
}

std::vector<std::string> ModelCodec::pieces(std::span<const std::int32_t> ids,
                                            bool skip_special) const {
  text::Detokenizer detokenizer(tokenizer_.value(), skip_special);
  std::vector<std::string> out(ids.size() + 1);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    detokenizer.push(ids[i], out[i]);
  }
  detokenizer.finish(out.back());
  return out;
}

std::string ModelCodec::token_bytes(std::int32_t id) const {
  return tokenizer_ ? std::string(tokenizer_->token_bytes(id, /*skip_special=*/false))
                    : std::string();
}

std::string ModelCodec::render(const ChatPrompt& chat) const {
  return renderer_.value().render(chat, {});
}

}  // namespace rigel::server
