#include "text/utf8.h"

namespace rigel::text {
namespace {

/// What a lead byte promises: how many bytes follow and which range the first of them must be in.
/// Narrowed ranges shut out overlong forms, surrogates and values above U+10FFFF.
struct Lead {
  uint8_t num_following;  // 0: ASCII, or no lead byte at all
  uint8_t lowest_next;
  uint8_t highest_next;
};

Lead classify_lead(uint8_t byte) {
  if (byte < 0xC2 || byte > 0xF4) {
    return {0, 0, 0};
  }
  if (byte < 0xE0) {
    return {1, 0x80, 0xBF};
  }
  if (byte < 0xF0) {
    return {2, static_cast<uint8_t>(byte == 0xE0 ? 0xA0 : 0x80),
            static_cast<uint8_t>(byte == 0xED ? 0x9F : 0xBF)};
  }
  return {3, static_cast<uint8_t>(byte == 0xF0 ? 0x90 : 0x80),
          static_cast<uint8_t>(byte == 0xF4 ? 0x8F : 0xBF)};
}

}  // namespace

void append_utf8(char32_t code_point, std::string& out) {
  if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point <= 0xDFFF)) {
    code_point = kReplacementCharacter;
  }
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

DecodedCharacter decode_character(std::string_view text, std::size_t offset) {
  const auto first = static_cast<uint8_t>(text[offset]);
  if (first < 0x80) {
    return {first, 1, true};
  }
  const Lead lead = classify_lead(first);
  if (lead.num_following == 0) {
    return {kReplacementCharacter, 1, false};
  }
  char32_t code_point = first & (0x3F >> lead.num_following);
  uint8_t lowest = lead.lowest_next;
  uint8_t highest = lead.highest_next;
  for (uint8_t i = 1; i <= lead.num_following; ++i) {
    const std::size_t at = offset + i;
    const uint8_t byte = at < text.size() ? static_cast<uint8_t>(text[at]) : 0;
    if (byte < lowest || byte > highest) {
      return {kReplacementCharacter, i, false};
    }
    code_point = code_point << 6 | (byte & 0x3F);
    lowest = 0x80;
    highest = 0xBF;
  }
  return {code_point, static_cast<uint8_t>(lead.num_following + 1), true};
}

std::string to_valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const DecodedCharacter character = decode_character(text, i);
    if (character.is_valid) {
      out.append(text.substr(i, character.num_bytes));
    } else {
      append_utf8(kReplacementCharacter, out);
    }
    i += character.num_bytes;
  }
  return out;
}

void Utf8Decoder::push(uint8_t byte, std::string& out) {
  if (num_held_ > 0 && (byte < lowest_next_ || byte > highest_next_)) {
    append_utf8(kReplacementCharacter, out);
    num_held_ = 0;
  }
  if (num_held_ == 0) {
    begin(byte, out);
    return;
  }
  held_[num_held_++] = static_cast<char>(byte);
  lowest_next_ = 0x80;
  highest_next_ = 0xBF;
  if (--num_missing_ == 0) {
    out.append(held_, num_held_);
    num_held_ = 0;
  }
}

void Utf8Decoder::begin(uint8_t lead, std::string& out) {
  if (lead < 0x80) {
    out.push_back(static_cast<char>(lead));
    return;
  }
  const Lead promise = classify_lead(lead);
  if (promise.num_following == 0) {
    append_utf8(kReplacementCharacter, out);
    return;
  }
  held_[0] = static_cast<char>(lead);
  num_held_ = 1;
  num_missing_ = promise.num_following;
  lowest_next_ = promise.lowest_next;
  highest_next_ = promise.highest_next;
}

void Utf8Decoder::finish(std::string& out) {
  if (num_held_ > 0) {
    append_utf8(kReplacementCharacter, out);
    num_held_ = 0;
  }
}

}  // namespace rigel::text
