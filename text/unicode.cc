#include "text/unicode.h"

#include "text/generated/unicode_tables.h"
#include "text/utf8.h"

#include <algorithm>
#include <span>

namespace rigel::text {
namespace {

bool contains(std::span<const unicode_tables::Range> ranges, char32_t code_point) {
  const auto after = std::upper_bound(
      ranges.begin(), ranges.end(), code_point,
      [](char32_t c, const unicode_tables::Range& range) { return c < range.first; });
  return after != ranges.begin() && code_point <= std::prev(after)->last;
}

std::string map_case(std::string_view text, std::span<const unicode_tables::CaseMapping> mappings) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const DecodedCharacter character = decode_character(text, i);
    const auto mapping = std::lower_bound(
        mappings.begin(), mappings.end(), character.code_point,
        [](const unicode_tables::CaseMapping& m, char32_t c) { return m.from < c; });
    if (character.is_valid && mapping != mappings.end() && mapping->from == character.code_point) {
      for (const char32_t c : mapping->to) {
        if (c != 0) {
          append_utf8(c, out);
        }
      }
    } else {
      out.append(text.substr(i, character.num_bytes));
    }
    i += character.num_bytes;
  }
  return out;
}

}  // namespace

bool is_letter(char32_t c) {
  if (c < 0x80) {
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
  }
  return contains({unicode_tables::letters, unicode_tables::letters_count}, c);
}

bool is_number(char32_t c) {
  if (c < 0x80) {
    return c >= '0' && c <= '9';
  }
  return contains({unicode_tables::numbers, unicode_tables::numbers_count}, c);
}

bool is_space(char32_t c) {
  if (c < 0x80) {
    return c == ' ' || (c >= '\t' && c <= '\r');
  }
  return contains({unicode_tables::white_space, unicode_tables::white_space_count}, c);
}

bool is_printable(char32_t c) {
  if (c < 0x80) {
    return c >= ' ' && c != 0x7F;
  }
  return !contains({unicode_tables::unprintable, unicode_tables::unprintable_count}, c);
}

bool is_python_space(char32_t c) {
  return is_space(c) || (c >= 0x1C && c <= 0x1F);
}

std::string to_lower(std::string_view text) {
  return map_case(text, {unicode_tables::lower_case, unicode_tables::lower_case_count});
}

std::string to_upper(std::string_view text) {
  return map_case(text, {unicode_tables::upper_case, unicode_tables::upper_case_count});
}

}  // namespace rigel::text
