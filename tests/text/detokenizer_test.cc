#include "text/detokenizer.h"

#include "text/text_error.h"

#include <gtest/gtest.h>

#include <random>

namespace rigel::text {
namespace {

/// A vocabulary of the 256 byte tokens, in order.
const Tokenizer& byte_tokenizer() {
  static const Tokenizer tokenizer([] {
    TokenizerSpec spec;
    spec.model = TokenizerModel::kSentencePiece;
    constexpr char kDigits[] = "0123456789ABCDEF";
    for (int byte = 0; byte < 256; ++byte) {
      spec.tokens.push_back(std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">");
      spec.types.push_back(TokenType::kByte);
      spec.scores.push_back(0);
    }
    return spec;
  }());
  return tokenizer;
}

std::vector<std::string> pieces_of(const std::vector<int32_t>& bytes) {
  Detokenizer detokenizer(byte_tokenizer(), /*skip_special=*/false);
  std::vector<std::string> pieces;
  for (const int32_t byte : bytes) {
    detokenizer.push(byte, pieces.emplace_back());
  }
  detokenizer.finish(pieces.emplace_back());
  return pieces;
}

using Pieces = std::vector<std::string>;
constexpr const char* kBad = "\uFFFD";

TEST(Detokenizer, HoldsACharacterUntilItsLastByte) {
  EXPECT_EQ(pieces_of({0xF0, 0x9F, 0x98, 0x80, 'x'}), (Pieces{"", "", "", "\U0001F600", "x", ""}));
}

TEST(Detokenizer, ReplacesEachMaximalSubpartAsSoonAsItIsKnownToBeIllFormed) {
  EXPECT_EQ(pieces_of({0xF0, 0x9F, 'A'}), (Pieces{"", "", std::string(kBad) + "A", ""}));
  EXPECT_EQ(pieces_of({0xED, 0xA0}), (Pieces{"", std::string(kBad) + kBad, ""}));
  EXPECT_EQ(pieces_of({0xC0, 0xF5, 0x80}), (Pieces{kBad, kBad, kBad, ""}));
}

TEST(Detokenizer, ReplacesAnUnfinishedCharacterOnceAtTheEnd) {
  EXPECT_EQ(pieces_of({'a', 0xE2, 0x82}), (Pieces{"a", "", "", kBad}));
}

TEST(Detokenizer, KeepsARealReplacementCharacterAtTheEnd) {
  EXPECT_EQ(pieces_of({'a', 0xEF, 0xBF, 0xBD}), (Pieces{"a", "", "", kBad, ""}));
}

TEST(Detokenizer, EmitsNothingForIdsOutsideTheVocabulary) {
  EXPECT_EQ(pieces_of({-1, 256, 'x'}), (Pieces{"", "", "x", ""}));
}

TEST(Detokenizer, RoundTripsEveryCodePoint) {
  std::string out;
  Detokenizer detokenizer(byte_tokenizer(), /*skip_special=*/false);
  for (uint32_t c = 1; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) {
      continue;
    }
    // Encoded here by hand: the encoder of text/ is not its own witness.
    std::vector<uint32_t> bytes;
    if (c < 0x80) {
      bytes = {c};
    } else if (c < 0x800) {
      bytes = {0xC0 + c / 64, 0x80 + c % 64};
    } else if (c < 0x10000) {
      bytes = {0xE0 + c / 4096, 0x80 + c / 64 % 64, 0x80 + c % 64};
    } else {
      bytes = {0xF0 + c / 262144, 0x80 + c / 4096 % 64, 0x80 + c / 64 % 64, 0x80 + c % 64};
    }
    out.clear();
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      ASSERT_TRUE(out.empty()) << c;
      detokenizer.push(static_cast<int32_t>(bytes[i]), out);
    }
    ASSERT_EQ(out, std::string(bytes.begin(), bytes.end())) << c;
  }
}

/// A decoder of the whole byte string at once, written from table 3-7 of the Unicode Standard: at each position, the
/// longest prefix of a row's pattern; a whole row is a character, anything shorter one U+FFFD (at least one byte).
std::string decode_by_table(const std::vector<int32_t>& bytes) {
  struct Row {
    std::vector<std::pair<int, int>> ranges;
  };
  static const std::vector<Row> kRows = {
      {{{0x00, 0x7F}}},
      {{{0xC2, 0xDF}, {0x80, 0xBF}}},
      {{{0xE0, 0xE0}, {0xA0, 0xBF}, {0x80, 0xBF}}},
      {{{0xE1, 0xEC}, {0x80, 0xBF}, {0x80, 0xBF}}},
      {{{0xED, 0xED}, {0x80, 0x9F}, {0x80, 0xBF}}},
      {{{0xEE, 0xEF}, {0x80, 0xBF}, {0x80, 0xBF}}},
      {{{0xF0, 0xF0}, {0x90, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}}},
      {{{0xF1, 0xF3}, {0x80, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}}},
      {{{0xF4, 0xF4}, {0x80, 0x8F}, {0x80, 0xBF}, {0x80, 0xBF}}},
  };
  std::string text;
  for (std::size_t at = 0; at < bytes.size();) {
    std::size_t longest = 1;
    bool is_whole = false;
    for (const Row& row : kRows) {
      std::size_t n = 0;
      while (n < row.ranges.size() && at + n < bytes.size() &&
             bytes[at + n] >= row.ranges[n].first && bytes[at + n] <= row.ranges[n].second) {
        ++n;
      }
      if (n > 0 && n >= longest) {
        longest = n;
        is_whole = n == row.ranges.size();
      }
    }
    if (is_whole) {
      text.append(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                  bytes.begin() + static_cast<std::ptrdiff_t>(at + longest));
    } else {
      text += kBad;
    }
    at += longest;
  }
  return text;
}

TEST(Detokenizer, EqualsADecoderOfTheWholeTextOnRandomBytes) {
  std::mt19937 random(11);
  constexpr int kEdges[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                            0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE,
                            0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF};
  for (int round = 0; round < 60000; ++round) {
    std::vector<int32_t> bytes(random() % 12);
    for (int32_t& byte : bytes) {
      byte = random() % 4 == 0 ? static_cast<int32_t>(random() % 256)
                               : kEdges[random() % std::size(kEdges)];
    }
    std::string joined;
    for (const std::string& piece : pieces_of(bytes)) {
      joined += piece;
      ASSERT_EQ(to_valid_utf8(piece), piece);
    }
    ASSERT_EQ(joined, decode_by_table(bytes));
    ASSERT_EQ(to_valid_utf8(std::string(bytes.begin(), bytes.end())), joined);
  }
}

}  // namespace
}  // namespace rigel::text
