#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rigel::text {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

/// Appends `code_point` as UTF-8. Surrogates and values above U+10FFFF become U+FFFD.
void append_utf8(char32_t code_point, std::string& out);

/// One character of a text, or one maximal subpart of an ill-formed sequence in it.
struct DecodedCharacter {
  char32_t code_point;  // U+FFFD if ill-formed
  uint8_t num_bytes;    // 1 to 4
  bool is_valid;
};

/// The character that begins at byte `offset` < text.size().
DecodedCharacter decode_character(std::string_view text, std::size_t offset);

/// `text` with each maximal subpart of an ill-formed sequence replaced by one U+FFFD.
std::string to_valid_utf8(std::string_view text);

/// UTF-8 decoder with state: bytes come in, valid UTF-8 goes out as soon as it is known.
///
/// A prefix that can still become a character is held back. Each maximal subpart of an ill-formed
/// sequence (Unicode 3.9, table 3-7; also what WHATWG's decoder does) becomes one U+FFFD at once.
/// Thread: one owner.
class Utf8Decoder {
 public:
  /// Appends to `out` what the byte completes: nothing, a character, or U+FFFD and perhaps a character.
  void push(uint8_t byte, std::string& out);

  /// Appends U+FFFD if a prefix is held back, and starts over.
  void finish(std::string& out);

  /// Bytes held back: 0 to 3.
  int num_held_bytes() const { return num_held_; }

 private:
  void begin(uint8_t lead, std::string& out);

  char held_[4] = {};
  uint8_t num_held_ = 0;
  uint8_t num_missing_ = 0;
  uint8_t lowest_next_ = 0x80;  // the range the next byte must be in
  uint8_t highest_next_ = 0xBF;
};

}  // namespace rigel::text
