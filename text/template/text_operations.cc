#include "text/template/text_operations.h"

#include "text/text_error.h"
#include "text/unicode.h"
#include "text/utf8.h"

#include <algorithm>

namespace rigel::text::chat {
namespace {

bool is_stripped(std::string_view character, char32_t code_point,
                 const std::optional<std::string>& set) {
  return set ? set->find(character) != std::string::npos : is_python_space(code_point);
}

Value part(std::string_view text) {
  return Value::string(std::string(text));
}

void check_separator(const std::optional<std::string>& separator) {
  if (separator && separator->empty()) {
    throw TextError("empty separator");
  }
}

/// Words between white space; after `max_splits` of them, all the rest is the last.
ValueList split_at_space(std::string_view text, int64_t max_splits) {
  ValueList words;
  std::size_t begin = text.size();  // of the word at hand, if `is_inside`
  bool is_inside = false;
  for (std::size_t i = 0; i < text.size();) {
    const DecodedCharacter character = decode_character(text, i);
    const bool is_space = is_python_space(character.code_point);
    if (is_inside && is_space) {
      words.push_back(part(text.substr(begin, i - begin)));
    } else if (!is_inside && !is_space) {
      begin = i;
      if (static_cast<int64_t>(words.size()) == max_splits) {
        words.push_back(part(strip(text.substr(begin), Side::kRight, std::nullopt)));
        return words;
      }
    }
    is_inside = !is_space;
    i += character.num_bytes;
  }
  if (is_inside) {
    words.push_back(part(text.substr(begin)));
  }
  return words;
}

}  // namespace

std::string strip(std::string_view text, Side side, const std::optional<std::string>& set) {
  std::size_t begin = text.size();  // of the first character that stays
  std::size_t end = 0;              // behind the last one
  for (std::size_t i = 0; i < text.size();) {
    const DecodedCharacter character = decode_character(text, i);
    if (!is_stripped(text.substr(i, character.num_bytes), character.code_point, set)) {
      begin = std::min(begin, i);
      end = i + character.num_bytes;
    }
    i += character.num_bytes;
  }
  if (side == Side::kLeft) {
    end = text.size();
  } else if (side == Side::kRight) {
    begin = 0;
  }
  return begin < end ? std::string(text.substr(begin, end - begin)) : std::string();
}

ValueList split(std::string_view text, const std::optional<std::string>& separator,
                int64_t max_splits) {
  check_separator(separator);
  if (!separator) {
    return split_at_space(text, max_splits);
  }
  ValueList parts;
  std::size_t begin = 0;
  while (max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits) {
    const std::size_t at = text.find(*separator, begin);
    if (at == std::string_view::npos) {
      break;
    }
    parts.push_back(part(text.substr(begin, at - begin)));
    begin = at + separator->size();
  }
  parts.push_back(part(text.substr(begin)));
  return parts;
}

ValueList split_from_right(std::string_view text, const std::optional<std::string>& separator,
                           int64_t max_splits) {
  check_separator(separator);
  if (max_splits < 0) {
    return split(text, separator, max_splits);
  }
  if (!separator) {
    throw TextError("rsplit() at white space with a limit is not supported");
  }
  ValueList parts;
  std::size_t end = text.size();
  while (static_cast<int64_t>(parts.size()) < max_splits && end >= separator->size()) {
    const std::size_t at = text.rfind(*separator, end - separator->size());
    if (at == std::string_view::npos) {
      break;
    }
    parts.push_back(part(text.substr(at + separator->size(), end - at - separator->size())));
    end = at;
  }
  parts.push_back(part(text.substr(0, end)));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

ValueList split_lines(std::string_view text) {
  ValueList lines;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find_first_of("\r\n", begin), text.size());
    lines.push_back(part(text.substr(begin, end - begin)));
    begin = end + (text.substr(end).starts_with("\r\n") ? 2 : 1);
  }
  return lines;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t max_count) {
  std::string out;
  int64_t num_replaced = 0;
  const auto may_replace = [&] { return max_count < 0 || num_replaced < max_count; };
  std::size_t i = 0;
  while (i < text.size()) {
    if (may_replace() && text.substr(i).starts_with(from)) {
      out += to;
      i += from.size();
      ++num_replaced;
      if (!from.empty()) {
        continue;
      }
    }
    const std::size_t num_bytes = decode_character(text, i).num_bytes;
    out += text.substr(i, num_bytes);
    i += num_bytes;
  }
  if (from.empty() && may_replace()) {
    out += to;
  }
  return out;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) {
    return "";
  }
  const std::size_t num_bytes = decode_character(text, 0).num_bytes;
  return to_upper(text.substr(0, num_bytes)) + to_lower(text.substr(num_bytes));
}

std::string title_case(std::string_view text) {
  std::string out;
  bool is_inside_word = false;
  for (std::size_t i = 0; i < text.size();) {
    const DecodedCharacter character = decode_character(text, i);
    const std::string_view bytes = text.substr(i, character.num_bytes);
    out += is_inside_word ? to_lower(bytes) : to_upper(bytes);
    is_inside_word = is_letter(character.code_point);
    i += character.num_bytes;
  }
  return out;
}

std::string indent(std::string_view text, std::string_view prefix, bool first, bool blank) {
  std::string out(first ? prefix : "");
  bool is_first = true;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (!is_first) {
      out.push_back('\n');
      out += blank || !line.empty() ? prefix : "";
    }
    out += line;
    is_first = false;
    begin = end + 1;
  }
  return out;
}

}  // namespace rigel::text::chat
