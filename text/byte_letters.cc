#include "text/byte_letters.h"

#include "text/utf8.h"

#include <array>

namespace rigel::text {
namespace {

constexpr bool is_its_own_letter(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr char32_t kNumLetters = 0x144;  // one past the highest letter

struct Letters {
  std::array<char32_t, 256> of_byte{};
  std::array<int16_t, kNumLetters> to_byte{};
};

constexpr Letters make_letters() {
  Letters letters;
  letters.to_byte.fill(-1);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t letter = is_its_own_letter(byte) ? static_cast<char32_t>(byte) : next++;
    letters.of_byte[static_cast<std::size_t>(byte)] = letter;
    letters.to_byte[letter] = static_cast<int16_t>(byte);
  }
  return letters;
}

constexpr Letters kLetters = make_letters();
static_assert(kLetters.of_byte[' '] == U'\u0120' && kLetters.of_byte[0xAD] == kNumLetters - 1);

}  // namespace

char32_t letter_of_byte(uint8_t byte) {
  return kLetters.of_byte[byte];
}

std::optional<uint8_t> byte_of_letter(char32_t letter) {
  if (letter >= kNumLetters || kLetters.to_byte[letter] < 0) {
    return std::nullopt;
  }
  return static_cast<uint8_t>(kLetters.to_byte[letter]);
}

std::string bytes_of_letters(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (std::size_t i = 0; i < token.size();) {
    const DecodedCharacter letter = decode_character(token, i);
    const std::optional<uint8_t> byte =
        letter.is_valid ? byte_of_letter(letter.code_point) : std::nullopt;
    if (byte) {
      bytes.push_back(static_cast<char>(*byte));
    } else {
      bytes.append(token.substr(i, letter.num_bytes));
    }
    i += letter.num_bytes;
  }
  return bytes;
}

}  // namespace rigel::text
