// How values print: Python's str, repr and json.dumps.
#include "text/text_error.h"
#include "text/unicode.h"
#include "text/utf8.h"
#include "text/value.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace rigel::text {
namespace {

void append_quoted(std::string_view text, std::string& out) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out.push_back(quote);
  for (std::size_t i = 0; i < text.size();) {
    const DecodedCharacter character = decode_character(text, i);
    const char32_t c = character.code_point;
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      append_utf8(c, out);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
    i += character.num_bytes;
  }
  out.push_back(quote);
}

void append_representation(const Value& value, std::string& out) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      out += "Undefined";
      return;
    case Value::Kind::kNone:
      out += "None";
      return;
    case Value::Kind::kBoolean:
      out += value.is_true() ? "True" : "False";
      return;
    case Value::Kind::kInteger:
      out += std::to_string(value.as_integer());
      return;
    case Value::Kind::kFloat:
      out += format_real(value.as_real());
      return;
    case Value::Kind::kBigInteger:
      out += value.as_string();
      return;
    case Value::Kind::kString:
      append_quoted(value.as_string(), out);
      return;
    case Value::Kind::kList:
    case Value::Kind::kTuple: {
      const bool is_list = value.is(Value::Kind::kList);
      out.push_back(is_list ? '[' : '(');
      const char* separator = "";
      for (const Value& item : value.items()) {
        out += separator;
        append_representation(item, out);
        separator = ", ";
      }
      out += is_list ? "]" : value.items().size() == 1 ? ",)" : ")";
      return;
    }
    case Value::Kind::kDictionary: {
      out.push_back('{');
      const char* separator = "";
      for (const auto& [key, item] : value.as_dictionary().entries()) {
        out += separator;
        append_representation(key, out);
        out += ": ";
        append_representation(item, out);
        separator = ", ";
      }
      out.push_back('}');
      return;
    }
    default:
      throw TextError(fmt::format("a {} cannot be printed", type_name(value)));
  }
}

class JsonWriter {
 public:
  JsonWriter(const JsonFormat& format, std::string& out) : format_(format), out_(out) {}

  void write(const Value& value) {
    switch (value.kind()) {
      case Value::Kind::kNone:
        out_ += "null";
        return;
      case Value::Kind::kBoolean:
        out_ += value.is_true() ? "true" : "false";
        return;
      case Value::Kind::kInteger:
        out_ += std::to_string(value.as_integer());
        return;
      case Value::Kind::kFloat:
        out_ += real(value.as_real());
        return;
      case Value::Kind::kBigInteger:
        out_ += value.as_string();
        return;
      case Value::Kind::kString:
        write_string(value.as_string());
        return;
      case Value::Kind::kList:
      case Value::Kind::kTuple:
        write_items(value.items());
        return;
      case Value::Kind::kDictionary:
        write_entries(value.as_dictionary().entries());
        return;
      default:
        throw TextError(
            fmt::format("Object of type {} is not JSON serializable", type_name(value)));
    }
  }

 private:
  static std::string real(double value) {
    if (std::isnan(value)) {
      return "NaN";
    }
    if (std::isinf(value)) {
      return value > 0 ? "Infinity" : "-Infinity";
    }
    return format_real(value);
  }

  void write_items(const ValueList& items) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    open('[');
    bool is_first = true;
    for (const Value& item : items) {
      separate(is_first);
      write(item);
    }
    close(']');
  }

  void write_entries(std::vector<Dictionary::Entry> entries) {
    if (entries.empty()) {
      out_ += "{}";
      return;
    }
    if (format_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
        return key_text(a.first) < key_text(b.first);
      });
    }
    open('{');
    bool is_first = true;
    for (const auto& [key, item] : entries) {
      separate(is_first);
      write_string(key_text(key));
      out_ += format_.key_separator;
      write(item);
    }
    close('}');
  }

  static std::string key_text(const Value& key) {
    switch (key.kind()) {
      case Value::Kind::kString:
        return key.as_string();
      case Value::Kind::kNone:
        return "null";
      case Value::Kind::kBoolean:
        return key.is_true() ? "true" : "false";
      case Value::Kind::kInteger:
        return to_text(key);
      case Value::Kind::kFloat:
        return real(key.as_real());
      default:
        throw TextError(
            fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key)));
    }
  }

  void write_string(std::string_view text) {
    out_.push_back('"');
    for (std::size_t i = 0; i < text.size();) {
      const DecodedCharacter character = decode_character(text, i);
      write_character(character.code_point);
      i += character.num_bytes;
    }
    out_.push_back('"');
  }

  void write_character(char32_t c) {
    constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b";
    constexpr std::string_view kLetters = "\"\\nrtfb";
    const std::size_t escape =
        c < 0x80 ? kEscaped.find(static_cast<char>(c)) : std::string_view::npos;
    if (escape != std::string_view::npos) {
      out_.push_back('\\');
      out_.push_back(kLetters[escape]);
    } else if (c < 0x20 || (format_.ensure_ascii && c >= 0x7F && c < 0x10000)) {
      // DEL is ASCII: json.dumps leaves it as it is.
      out_ +=
          c == 0x7F ? std::string(1, '\x7F') : fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else if (format_.ensure_ascii && c >= 0x10000) {
      const auto offset = static_cast<uint32_t>(c - 0x10000);
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (offset >> 10), 0xDC00 + (offset & 0x3FF));
    } else {
      append_utf8(c, out_);
    }
  }

  void open(char bracket) {
    out_.push_back(bracket);
    ++level_;
  }

  void separate(bool& is_first) {
    if (!is_first) {
      out_ += format_.item_separator;
    }
    is_first = false;
    break_line();
  }

  void close(char bracket) {
    --level_;
    break_line();
    out_.push_back(bracket);
  }

  void break_line() {
    if (format_.indent >= 0) {
      out_.push_back('\n');
      out_.append(static_cast<std::size_t>(format_.indent * level_), ' ');
    }
  }

  const JsonFormat& format_;
  std::string& out_;
  int level_ = 0;
};

}  // namespace

std::string format_real(double value) {
  if (std::isnan(value)) {
    return "nan";
  }
  if (std::isinf(value)) {
    return value > 0 ? "inf" : "-inf";
  }
  // d[.ddd]e[+-]dd, the shortest digits that read back the same.
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t e = text.find('e');
  const int exponent = std::stoi(std::string(text.substr(e + 1)));
  if (exponent < -4 || exponent >= 16) {
    return std::string(text);
  }
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') {
      digits.push_back(c);
    }
  }
  std::string out(std::signbit(value) ? "-" : "");
  if (exponent < 0) {
    return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  }
  const auto num_whole = static_cast<std::size_t>(exponent) + 1;
  digits.append(digits.size() < num_whole ? num_whole - digits.size() : 0, '0');
  const std::string fraction = digits.substr(num_whole);
  return out + digits.substr(0, num_whole) + "." + (fraction.empty() ? "0" : fraction);
}

std::string to_text(const Value& value) {
  if (value.is_string()) {
    return value.as_string();
  }
  return value.is_undefined() ? "" : to_representation(value);
}

std::string to_representation(const Value& value) {
  std::string out;
  append_representation(value, out);
  return out;
}

std::string to_json(const Value& value, const JsonFormat& format) {
  std::string out;
  JsonWriter(format, out).write(value);
  return out;
}

}  // namespace rigel::text
