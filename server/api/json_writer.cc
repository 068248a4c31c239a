#include "server/api/json_writer.h"

#include "text/utf8.h"

#include <fmt/core.h>

#include <cmath>
#include <iterator>

namespace rigel::server {
namespace {

void append_escaped(std::string& out, std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const text::DecodedCharacter character = text::decode_character(text, i);
    const char c = text[i];
    if (!character.is_valid) {
      out += "\xEF\xBF\xBD";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else if (character.code_point < 0x20 || character.code_point == 0x7F) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<int>(c));
    } else {
      out.append(text, i, character.num_bytes);
    }
    i += character.num_bytes;
  }
}

}  // namespace

void JsonWriter::separate() {
  if (needs_comma_) {
    out_ += ',';
  }
  needs_comma_ = true;
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  out_ += bracket;
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  out_ += bracket;
  needs_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  string(name);
  out_ += ':';
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  out_ += json;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view text) {
  separate();
  out_ += '"';
  append_escaped(out_, text);
  out_ += '"';
  return *this;
}

JsonWriter& JsonWriter::integer(std::int64_t x) {
  separate();
  fmt::format_to(std::back_inserter(out_), "{}", x);
  return *this;
}

JsonWriter& JsonWriter::unsigned_integer(std::uint64_t x) {
  separate();
  fmt::format_to(std::back_inserter(out_), "{}", x);
  return *this;
}

JsonWriter& JsonWriter::real(float x) {
  if (!std::isfinite(x)) {
    return raw("null");
  }
  separate();
  fmt::format_to(std::back_inserter(out_), "{}", x);
  return *this;
}

JsonWriter& JsonWriter::real(double x) {
  if (!std::isfinite(x)) {
    return raw("null");
  }
  separate();
  fmt::format_to(std::back_inserter(out_), "{}", x);
  return *this;
}

}  // namespace rigel::server
