#include "text/pre_tokenizer.h"

#include "text/unicode.h"
#include "text/utf8.h"

#include <algorithm>

namespace rigel::text {
namespace {

using Class = Character::Class;

Class classify(char32_t c) {
  if (is_letter(c)) {
    return Class::kLetter;
  }
  if (is_number(c)) {
    return Class::kNumber;
  }
  if (c == '\n' || c == '\r') {
    return Class::kLineBreak;
  }
  return is_space(c) ? Class::kSpace : Class::kOther;
}

void classify_all(std::string_view text, std::vector<Character>& characters) {
  characters.clear();
  for (std::size_t i = 0; i < text.size();) {
    const DecodedCharacter decoded = decode_character(text, i);
    const Class cls = decoded.is_valid ? classify(decoded.code_point) : Class::kOther;
    characters.push_back({static_cast<uint32_t>(i), cls});
    i += decoded.num_bytes;
  }
}

/// A stretch of text as the patterns see it: positions count characters, and beyond `end` there is nothing.
class Stretch {
 public:
  Stretch(std::string_view text, const std::vector<Character>& characters, std::size_t end)
      : text_(text), characters_(characters), end_(end) {}

  std::size_t end() const { return end_; }
  Class at(std::size_t i) const { return characters_[i].cls; }
  bool is(std::size_t i, Class cls) const { return i < end_ && at(i) == cls; }
  bool is_white(std::size_t i) const { return is(i, Class::kSpace) || is(i, Class::kLineBreak); }
  bool is_blank(std::size_t i) const { return i < end_ && byte_at(i) == ' '; }
  char byte_at(std::size_t i) const { return text_[characters_[i].begin]; }

  /// The text of characters [first, last).
  std::string_view slice(std::size_t first, std::size_t last) const {
    const std::size_t begin = characters_[first].begin;
    const std::size_t end = last < characters_.size() ? characters_[last].begin : text_.size();
    return text_.substr(begin, end - begin);
  }

  /// The end of the run of `cls` that begins at `i`.
  std::size_t skip(std::size_t i, Class cls) const {
    while (is(i, cls)) {
      ++i;
    }
    return i;
  }

  std::size_t skip_white(std::size_t i) const {
    while (is_white(i)) {
      ++i;
    }
    return i;
  }

 private:
  std::string_view text_;
  const std::vector<Character>& characters_;
  std::size_t end_;
};

/// The letter at `i`, lower-cased if `ignore_case`; 0 for all that no contraction holds.
char contraction_letter(const Stretch& stretch, std::size_t i, bool ignore_case) {
  if (!stretch.is(i, Class::kLetter)) {
    return 0;
  }
  const std::string_view letter = stretch.slice(i, i + 1);
  if (letter.size() == 1) {
    const char c = letter[0];
    return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  }
  return ignore_case && letter == "\u017F" ? 's' : 0;  // the long s folds to s
}

/// 's|'t|'re|'ve|'m|'ll|'d at `i`: its end, or `i`.
std::size_t skip_contraction(const Stretch& stretch, std::size_t i, bool ignore_case) {
  if (stretch.byte_at(i) != '\'') {
    return i;
  }
  const char first = contraction_letter(stretch, i + 1, ignore_case);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') {
    return i + 2;
  }
  const char second = first != 0 ? contraction_letter(stretch, i + 2, ignore_case) : '\0';
  const bool matches =
      (second == 'e' && (first == 'r' || first == 'v')) || (second == 'l' && first == 'l');
  return matches ? i + 3 : i;
}

/// \s+(?!\S)|\s+ at white space `i`: all of it at the end, else all but the last one, but at least one.
std::size_t skip_white_before_text(const Stretch& stretch, std::size_t i) {
  const std::size_t end = stretch.skip_white(i);
  return end == stretch.end() || end == i + 1 ? end : end - 1;
}

/// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
std::size_t gpt2_piece_end(const Stretch& stretch, std::size_t i) {
  if (const std::size_t end = skip_contraction(stretch, i, /*ignore_case=*/false); end != i) {
    return end;
  }
  const std::size_t first =
      stretch.is_blank(i) && i + 1 < stretch.end() && !stretch.is_white(i + 1) ? i + 1 : i;
  if (!stretch.is_white(first)) {
    return stretch.skip(first, stretch.at(first));
  }
  return skip_white_before_text(stretch, i);
}

/// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
/// |\s*[\r\n]+|\s+(?!\S)|\s+
std::size_t llama_piece_end(const Stretch& stretch, std::size_t i, std::size_t max_digits) {
  if (const std::size_t end = skip_contraction(stretch, i, /*ignore_case=*/true); end != i) {
    return end;
  }
  const Class cls = stretch.at(i);
  if (cls == Class::kLetter) {
    return stretch.skip(i, Class::kLetter);
  }
  if (cls == Class::kNumber) {
    return std::min(stretch.skip(i, Class::kNumber), i + max_digits);
  }
  if (cls != Class::kLineBreak && stretch.is(i + 1, Class::kLetter)) {
    return stretch.skip(i + 1, Class::kLetter);
  }
  const std::size_t first = stretch.is_blank(i) && stretch.is(i + 1, Class::kOther) ? i + 1 : i;
  if (stretch.is(first, Class::kOther)) {
    return stretch.skip(stretch.skip(first, Class::kOther), Class::kLineBreak);
  }
  // White space up to its last line break, if it has one.
  for (std::size_t end = stretch.skip_white(i); end > i; --end) {
    if (stretch.is(end - 1, Class::kLineBreak)) {
      return end;
    }
  }
  return skip_white_before_text(stretch, i);
}

std::size_t piece_end(PreTokenizer kind, const Stretch& stretch, std::size_t i) {
  switch (kind) {
    case PreTokenizer::kLlamaBpe:
      return llama_piece_end(stretch, i, /*max_digits=*/3);
    case PreTokenizer::kQwen2:
      return llama_piece_end(stretch, i, /*max_digits=*/1);
    case PreTokenizer::kGpt2:
    case PreTokenizer::kSmolLm:
      break;
  }
  return gpt2_piece_end(stretch, i);
}

}  // namespace

std::optional<PreTokenizer> find_pre_tokenizer(std::string_view name) {
  if (name == "gpt-2") {
    return PreTokenizer::kGpt2;
  }
  if (name == "smollm") {
    return PreTokenizer::kSmolLm;
  }
  if (name == "llama-bpe") {
    return PreTokenizer::kLlamaBpe;
  }
  if (name == "qwen2") {
    return PreTokenizer::kQwen2;
  }
  return std::nullopt;
}

std::string_view known_pre_tokenizers() {
  return "smollm, gpt-2, llama-bpe, qwen2";
}

void cut_into_pieces(PreTokenizer kind, std::string_view text, std::vector<Character>& characters,
                     std::vector<std::string_view>& pieces) {
  pieces.clear();
  classify_all(text, characters);
  const bool numbers_stand_alone = kind == PreTokenizer::kSmolLm;
  for (std::size_t i = 0; i < characters.size();) {
    if (numbers_stand_alone && characters[i].cls == Class::kNumber) {
      pieces.push_back(Stretch(text, characters, i + 1).slice(i, i + 1));
      ++i;
      continue;
    }
    // Where numbers stand alone, the patterns (and their look-ahead) see the text up to the next one only.
    std::size_t end = characters.size();
    if (numbers_stand_alone) {
      end = i;
      while (end < characters.size() && characters[end].cls != Class::kNumber) {
        ++end;
      }
    }
    const Stretch stretch(text, characters, end);
    while (i < end) {
      const std::size_t next = piece_end(kind, stretch, i);
      pieces.push_back(stretch.slice(i, next));
      i = next;
    }
  }
}

}  // namespace rigel::text
