#include "text/detokenizer.h"

namespace rigel::text {

void Detokenizer::push(int32_t id, std::string& out) {
  for (const char byte : tokenizer_.token_bytes(id, skip_special_)) {
    decoder_.push(static_cast<uint8_t>(byte), out);
  }
}

std::string detokenize(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                       bool skip_special) {
  std::string text;
  Detokenizer detokenizer(tokenizer, skip_special);
  for (const int32_t id : ids) {
    detokenizer.push(id, text);
  }
  detokenizer.finish(text);
  return text;
}

}  // namespace rigel::text
