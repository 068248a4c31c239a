#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// GPT-2's spelling of bytes: each of the 256 bytes is a printable letter, so that tokens are text.
///
/// Source: `bytes_to_unicode` of openai/gpt-2, src/encoder.py. Thread: any.
namespace rigel::text {

/// The letter of `byte`: itself where it is printable Latin-1, else one from U+0100 on.
char32_t letter_of_byte(uint8_t byte);

/// The byte of `letter`, if it is one of the 256.
std::optional<uint8_t> byte_of_letter(char32_t letter);

/// The bytes `token` spells. Characters that are none of the 256 letters stand for themselves.
std::string bytes_of_letters(std::string_view token);

}  // namespace rigel::text
