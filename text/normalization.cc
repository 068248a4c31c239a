#include "text/normalization.h"

#include "text/generated/unicode_tables.h"
#include "text/utf8.h"

#include <algorithm>
#include <span>
#include <vector>

namespace rigel::text {
namespace {

using unicode_tables::CombiningRange;
using unicode_tables::Composition;
using unicode_tables::Decomposition;

// No smaller code point decomposes or combines with one before it.
constexpr char32_t kFirstDecomposition = 0xC0;
constexpr char32_t kFirstCombining = 0x300;

// Hangul syllables are arithmetic (The Unicode Standard, 3.12).
constexpr char32_t kHangulSyllable = 0xAC00;
constexpr char32_t kHangulLead = 0x1100;
constexpr char32_t kHangulVowel = 0x1161;
constexpr char32_t kHangulTail = 0x11A7;
constexpr char32_t kNumLeads = 19;
constexpr char32_t kNumVowels = 21;
constexpr char32_t kNumTails = 28;
constexpr char32_t kNumSyllables = kNumLeads * kNumVowels * kNumTails;

uint8_t combining_class(char32_t c) {
  if (c < kFirstCombining) {
    return 0;
  }
  const std::span table(unicode_tables::combining, unicode_tables::combining_count);
  const auto after = std::upper_bound(
      table.begin(), table.end(), c,
      [](char32_t value, const CombiningRange& range) { return value < range.first; });
  if (after == table.begin() || c > std::prev(after)->last) {
    return 0;
  }
  return std::prev(after)->combining_class;
}

void append_decomposed(char32_t c, std::u32string& out) {
  if (c < kFirstDecomposition) {
    out.push_back(c);
    return;
  }
  if (c - kHangulSyllable < kNumSyllables) {
    const char32_t index = c - kHangulSyllable;
    out.push_back(kHangulLead + index / (kNumVowels * kNumTails));
    out.push_back(kHangulVowel + index / kNumTails % kNumVowels);
    if (index % kNumTails != 0) {
      out.push_back(kHangulTail + index % kNumTails);
    }
    return;
  }
  const std::span table(unicode_tables::decompositions, unicode_tables::decompositions_count);
  const auto found = std::lower_bound(
      table.begin(), table.end(), c,
      [](const Decomposition& row, char32_t value) { return row.code_point < value; });
  if (found == table.end() || found->code_point != c) {
    out.push_back(c);
    return;
  }
  out.append(unicode_tables::decomposition_parts + found->first_part, found->num_parts);
}

/// The primary composite of a pair, or 0.
char32_t compose(char32_t first, char32_t second) {
  if (first - kHangulLead < kNumLeads && second - kHangulVowel < kNumVowels) {
    return kHangulSyllable +
           ((first - kHangulLead) * kNumVowels + (second - kHangulVowel)) * kNumTails;
  }
  if (first - kHangulSyllable < kNumSyllables && (first - kHangulSyllable) % kNumTails == 0 &&
      second > kHangulTail && second < kHangulTail + kNumTails) {
    return first + (second - kHangulTail);
  }
  const std::span table(unicode_tables::compositions, unicode_tables::compositions_count);
  const auto found =
      std::lower_bound(table.begin(), table.end(), std::pair(first, second),
                       [](const Composition& row, std::pair<char32_t, char32_t> pair) {
                         return std::pair(row.first, row.second) < pair;
                       });
  const bool matches = found != table.end() && found->first == first && found->second == second;
  return matches ? found->composed : 0;
}

/// Sorts every run of combining marks by class, keeping the order of equals.
void put_in_canonical_order(std::u32string& text) {
  for (std::size_t begin = 0; begin < text.size();) {
    if (combining_class(text[begin]) == 0) {
      ++begin;
      continue;
    }
    std::size_t end = begin + 1;
    while (end < text.size() && combining_class(text[end]) != 0) {
      ++end;
    }
    std::stable_sort(text.begin() + static_cast<std::ptrdiff_t>(begin),
                     text.begin() + static_cast<std::ptrdiff_t>(end), [](char32_t a, char32_t b) {
                       return combining_class(a) < combining_class(b);
                     });
    begin = end;
  }
}

/// Joins starters with what follows them, in place (The Unicode Standard, D117).
void compose_in_place(std::u32string& text) {
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t starter = kNone;
  std::size_t num_kept = 0;
  int last_class = -1;  // of the character kept last after the starter; -1: none
  for (const char32_t c : text) {
    const int cls = combining_class(c);
    const bool is_blocked = last_class != -1 && (last_class >= cls);
    if (starter != kNone && !is_blocked) {
      if (const char32_t composed = compose(text[starter], c); composed != 0) {
        text[starter] = composed;
        continue;
      }
    }
    if (cls == 0) {
      starter = num_kept;
      last_class = -1;
    } else {
      last_class = cls;
    }
    text[num_kept++] = c;
  }
  text.resize(num_kept);
}

void flush(std::u32string& run, std::string& out) {
  put_in_canonical_order(run);
  compose_in_place(run);
  for (const char32_t c : run) {
    append_utf8(c, out);
  }
  run.clear();
}

/// Below U+0300 nothing combines and every letter is composed: such text is in form C.
/// Lead bytes below 0xCC begin code points below U+0300.
bool is_certainly_composed(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char byte) { return static_cast<uint8_t>(byte) < 0xCC; });
}

}  // namespace

std::optional<std::string> to_nfc(std::string_view text) {
  if (is_certainly_composed(text)) {
    return std::nullopt;
  }
  std::string out;
  out.reserve(text.size());
  std::u32string run;
  for (std::size_t i = 0; i < text.size();) {
    const DecodedCharacter character = decode_character(text, i);
    if (character.is_valid) {
      append_decomposed(character.code_point, run);
    } else {
      flush(run, out);
      out.append(text.substr(i, character.num_bytes));
    }
    i += character.num_bytes;
  }
  flush(run, out);
  return out;
}

}  // namespace rigel::text
