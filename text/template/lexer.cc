#include "text/template/lexer.h"

#include "text/template/template_error.h"
#include "text/unicode.h"
#include "text/utf8.h"

#include <fmt/core.h>

#include <algorithm>

namespace rigel::text::chat {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

/// One kind of line break, and none at the end.
std::string normalize_line_breaks(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      out.push_back('\n');
    }
  }
  if (out.ends_with('\n')) {
    out.pop_back();
  }
  return out;
}

/// The size of `text` without the white space at its end.
std::size_t size_without_trailing_space(std::string_view text) {
  std::size_t size = 0;
  for (std::size_t i = 0; i < text.size();) {
    const DecodedCharacter character = decode_character(text, i);
    i += character.num_bytes;
    if (!is_python_space(character.code_point)) {
      size = i;
    }
  }
  return size;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_line_breaks(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      lex_text();
    }
    add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  bool sees(std::string_view text) const {
    return std::string_view(source_).substr(at_).starts_with(text);
  }

  [[noreturn]] void fail(const std::string& message) const {
    throw TemplateError::at(line_, message);
  }

  void add(Token::Kind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), line_});
  }

  /// Moves on by `num_bytes`, counting lines.
  void advance(std::size_t num_bytes) {
    const std::size_t end = std::min(at_ + num_bytes, source_.size());
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    at_ = end;
  }

  void skip_space() {
    while (at_ < source_.size()) {
      const DecodedCharacter character = decode_character(source_, at_);
      if (!is_python_space(character.code_point)) {
        return;
      }
      advance(character.num_bytes);
    }
  }

  /// Text up to the next tag, then that tag.
  void lex_text() {
    const std::size_t begin = at_;
    std::size_t tag = source_.find('{', begin);
    while (tag != std::string::npos &&
           std::string_view("{%#").find(source_[tag + 1]) == std::string::npos) {
      tag = source_.find('{', tag + 1);
    }
    if (tag == std::string::npos) {
      add(Token::Kind::kText, source_.substr(begin));
      advance(source_.size() - begin);
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    std::string text = source_.substr(begin, tag - begin);
    if (sign == '-') {
      text.resize(size_without_trailing_space(text));
    } else if (sign != '+' && kind != '{') {
      strip_line_start(text, begin);
    }
    if (!text.empty()) {
      add(Token::Kind::kText, std::move(text));
    }
    advance(tag - begin + (sign == '-' || sign == '+' ? 3 : 2));
    if (kind == '#') {
      skip_comment();
    } else {
      lex_tag(kind == '{');
    }
  }

  /// Drops the white space between the start of a line and a block tag.
  void strip_line_start(std::string& text, std::size_t begin) const {
    const std::size_t line_break = text.rfind('\n');
    const bool begins_line =
        line_break != std::string::npos || begin == 0 || source_[begin - 1] == '\n';
    const std::size_t line = line_break == std::string::npos ? 0 : line_break + 1;
    if (begins_line && size_without_trailing_space(std::string_view(text).substr(line)) == 0) {
      text.resize(line);
    }
  }

  void skip_comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string::npos) {
      fail("missing end of comment tag");
    }
    const char sign = end > at_ ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    end_tag(sign, /*trims_line_break=*/true);
  }

  void end_tag(char sign, bool trims_line_break) {
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && trims_line_break && sees("\n")) {
      advance(1);
    }
  }

  void lex_tag(bool is_output) {
    add(is_output ? Token::Kind::kOutputBegin : Token::Kind::kBlockBegin, "");
    const std::string_view end = is_output ? "}}" : "%}";
    std::string brackets;
    while (true) {
      skip_space();
      if (at_ >= source_.size()) {
        fail(fmt::format("unexpected end of template, '{}' is missing", end));
      }
      if (brackets.empty()) {
        const bool has_sign = source_[at_] == '-' || (source_[at_] == '+' && !is_output);
        if (std::string_view(source_).substr(at_ + (has_sign ? 1 : 0)).starts_with(end)) {
          const char sign = has_sign ? source_[at_] : '\0';
          add(is_output ? Token::Kind::kOutputEnd : Token::Kind::kBlockEnd, "");
          advance(has_sign ? 3 : 2);
          end_tag(sign, /*trims_line_break=*/!is_output);
          return;
        }
      }
      lex_token(brackets);
    }
  }

  void lex_token(std::string& brackets) {
    const char c = source_[at_];
    if (is_name_start(c)) {
      std::size_t end = at_;
      while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end]))) {
        ++end;
      }
      take(Token::Kind::kName, end - at_);
    } else if (is_digit(c)) {
      lex_number();
    } else if (c == '"' || c == '\'') {
      lex_string(c);
    } else {
      lex_operator(brackets);
    }
  }

  void take(Token::Kind kind, std::size_t num_bytes) {
    add(kind, source_.substr(at_, num_bytes));
    advance(num_bytes);
  }

  /// Digits with single underscores between them, from `i`: their end.
  std::size_t skip_digits(std::size_t i) const {
    while (i < source_.size() &&
           (is_digit(source_[i]) ||
            (source_[i] == '_' && i + 1 < source_.size() && is_digit(source_[i + 1])))) {
      ++i;
    }
    return i;
  }

  void lex_number() {
    std::size_t end = skip_digits(at_);
    bool is_float = false;
    if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      is_float = true;
      end = skip_digits(end + 1);
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const bool has_sign =
          end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-');
      const std::size_t digits = end + (has_sign ? 2 : 1);
      if (digits < source_.size() && is_digit(source_[digits])) {
        is_float = true;
        end = skip_digits(digits);
      }
    }
    std::string text = source_.substr(at_, end - at_);
    std::erase(text, '_');
    add(is_float ? Token::Kind::kFloat : Token::Kind::kInteger, std::move(text));
    advance(end - at_);
  }

  void lex_string(char quote) {
    std::string text;
    std::size_t i = at_ + 1;
    while (i < source_.size() && source_[i] != quote) {
      if (source_[i] == '\\' && i + 1 < source_.size()) {
        i = append_escape(i + 1, text);
      } else {
        text.push_back(source_[i++]);
      }
    }
    if (i >= source_.size()) {
      fail("a string has no end");
    }
    add(Token::Kind::kString, std::move(text));
    advance(i + 1 - at_);
  }

  /// Appends what the escape at `i` (after the backslash) means; where it goes on.
  std::size_t append_escape(std::size_t i, std::string& out) const {
    constexpr std::string_view kLetters = "ntr\\'\"abfv";
    constexpr std::string_view kMeanings = "\n\t\r\\'\"\a\b\f\v";
    const char c = source_[i];
    if (const std::size_t letter = kLetters.find(c); letter != std::string_view::npos) {
      out.push_back(kMeanings[letter]);
      return i + 1;
    }
    if (c == '\n') {
      return i + 1;
    }
    if (c == 'x' || c == 'u' || c == 'U') {
      return append_code_point(i + 1, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16, out);
    }
    if (c >= '0' && c <= '7') {
      std::size_t num_digits = 1;
      while (num_digits < 3 && source_[i + num_digits] >= '0' && source_[i + num_digits] <= '7') {
        ++num_digits;
      }
      return append_code_point(i, num_digits, 8, out);
    }
    out.push_back('\\');  // not an escape: both characters stay
    out.push_back(c);
    return i + 1;
  }

  std::size_t append_code_point(std::size_t i, std::size_t num_digits, int base,
                                std::string& out) const {
    const std::string digits = source_.substr(i, num_digits);
    const bool is_number = digits.size() == num_digits &&
                           digits.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
    if (!is_number) {
      fail("an escape in a string has too few digits");
    }
    append_utf8(static_cast<char32_t>(std::stoul(digits, nullptr, base)), out);
    return i + num_digits;
  }

  void lex_operator(std::string& brackets) {
    for (const std::string_view two : {"==", "!=", ">=", "<=", "**", "//"}) {
      if (sees(two)) {
        take(Token::Kind::kOperator, 2);
        return;
      }
    }
    const char c = source_[at_];
    if (std::string_view("+-/*%~[](){}><=.:|,").find(c) == std::string_view::npos) {
      fail(fmt::format("unexpected character '{}'", c));
    }
    if (c == '(' || c == '[' || c == '{') {
      brackets.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (brackets.empty() || brackets.back() != c) {
        fail(fmt::format("unexpected '{}'", c));
      }
      brackets.pop_back();
    }
    take(Token::Kind::kOperator, 1);
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize_template(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace rigel::text::chat
