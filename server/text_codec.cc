#include "server/text_codec.h"

namespace rigel::server {

std::string decode(const TextCodec& codec, std::span<const std::int32_t> ids, bool skip_special) {
  std::string text;
  for (const std::string& piece : codec.pieces(ids, skip_special)) {
    text += piece;
  }
  return text;
}

}  // namespace rigel::server
