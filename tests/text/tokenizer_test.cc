#include "text/tokenizer.h"

#include "tests/text/gguf_vocabulary.h"
#include "text/byte_letters.h"
#include "text/normalization.h"
#include "text/text_error.h"
#include "text/utf8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>

namespace rigel::text {
namespace {

using ::testing::HasSubstr;

/// A byte-level vocabulary: the 256 letters, then the joins of `merges`, then an end token.
TokenizerSpec small_spec(const std::vector<std::string>& merges) {
  TokenizerSpec spec;
  spec.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    append_utf8(letter_of_byte(static_cast<uint8_t>(byte)), spec.tokens.emplace_back());
  }
  for (const std::string& merge : merges) {
    std::string join = merge;
    std::erase(join, ' ');
    spec.tokens.push_back(join);
  }
  spec.merges = merges;
  spec.tokens.push_back("<|end|>");
  spec.types.assign(spec.tokens.size(), TokenType::kNormal);
  spec.types.back() = TokenType::kControl;
  return spec;
}

std::string tokenizer_error(TokenizerSpec spec) {
  try {
    const Tokenizer tokenizer(std::move(spec));
  } catch (const TextError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Tokenizer, RefusesAnUnknownPreTokenizerByName) {
  TokenizerSpec spec = small_spec({});
  spec.pre = "tekken";
  EXPECT_THAT(tokenizer_error(spec), HasSubstr("'tekken'"));
}

TEST(Tokenizer, RefusesInconsistentSpecs) {
  TokenizerSpec spec = small_spec({});
  spec.types.pop_back();
  EXPECT_THAT(tokenizer_error(spec), HasSubstr("types"));
  spec = small_spec({});
  spec.eos = 100000;
  EXPECT_THAT(tokenizer_error(spec), HasSubstr("eos is 100000"));
  spec = small_spec({});
  spec.add_bos = true;
  EXPECT_THAT(tokenizer_error(spec), HasSubstr("add_bos"));
  spec = small_spec({});
  spec.merges = {"a zz"};
  EXPECT_THAT(tokenizer_error(spec), HasSubstr("'a zz'"));
  EXPECT_THAT(tokenizer_error(TokenizerSpec{}), HasSubstr("0 tokens"));
}

TEST(Tokenizer, MergesTheLowestRankFirstAndTheLeftmostOfEquals) {
  const Tokenizer tokenizer(small_spec({"b c", "a b", "a a"}));
  const auto texts = [&tokenizer](std::string_view text) {
    std::vector<std::string> tokens;
    for (const int32_t id : tokenizer.encode(text, {})) {
      tokens.emplace_back(tokenizer.token_bytes(id, /*skip_special=*/false));
    }
    return tokens;
  };
  EXPECT_THAT(texts("abc"), ::testing::ElementsAre("a", "bc"));
  EXPECT_THAT(texts("aaa"), ::testing::ElementsAre("aa", "a"));
  EXPECT_THAT(texts("aab"), ::testing::ElementsAre("a", "ab"));
}

TEST(Tokenizer, ReadsControlTokensInTemplatesOnly) {
  const Tokenizer tokenizer(small_spec({}));
  const int32_t end = *tokenizer.find_token("<|end|>");
  EXPECT_EQ(tokenizer.encode("x<|end|>", {.add_special = false, .parse_special = true}).back(),
            end);
  EXPECT_EQ(tokenizer.encode("x<|end|>", {.add_special = false, .parse_special = false}).size(),
            8U);
  EXPECT_EQ(tokenizer.token_bytes(end, /*skip_special=*/true), "");
}

std::string random_text(std::mt19937& random) {
  const std::vector<std::string> parts = {
      "a",          "b",        "the",  " ",    "  ", "\n",   "\r\n",   "'s",
      "'LL",        "1",        "42",   "!",    "é",  "日本", "\u0301", "\u3000",
      "\U0001F600", "\xF0\x9F", "\xFF", "\xC3", "_",  "ſ",    "\t"};
  std::string text;
  for (std::size_t n = random() % 40; n > 0; --n) {
    text += parts[random() % parts.size()];
  }
  return text;
}

TEST(Tokenizer, RoundTripsAnyBytesThroughEveryPreTokenizer) {
  std::mt19937 random(3);
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe"}) {
    TokenizerSpec spec = small_spec({"t h", "th e", "a b", "Ġ Ġ", "1 1"});
    spec.pre = pre;
    const Tokenizer tokenizer(std::move(spec));
    for (int round = 0; round < 3000; ++round) {
      const std::string text = random_text(random);
      std::string bytes;
      for (const int32_t id : tokenizer.encode(text, {})) {
        bytes += tokenizer.token_bytes(id, /*skip_special=*/false);
      }
      ASSERT_EQ(bytes, text);
    }
  }
}

TEST(ByteLevelBpe, ScanningAndQueueGiveTheSameTokens) {
  std::mt19937 random(5);
  const TokenizerSpec spec =
      small_spec({"a a", "a b", "aa b", "b a", "ab ab", "aab a", "ba b", "b b", "bb a", "aa aa"});
  const ByteLevelBpe bpe(spec, /*whole_pieces=*/false);
  ByteLevelBpe::Scratch scratch;
  for (int round = 0; round < 20000; ++round) {
    std::string piece(random() % 40, 'a');
    for (char& c : piece) {
      c = static_cast<char>('a' + random() % 3);
    }
    std::vector<int32_t> scanned;
    std::vector<int32_t> queued;
    bpe.merge_by_scanning(piece, scratch, scanned);
    bpe.merge_by_queue(piece, scratch, queued);
    ASSERT_EQ(scanned, queued) << piece;
  }
}

TEST(Normalization, ComposesToFormC) {
  EXPECT_EQ(to_nfc("plain é"), std::nullopt);
  EXPECT_EQ(to_nfc("e\u0301"), "\u00E9");
  EXPECT_EQ(to_nfc("\u1112\u1161\u11AB"), "\uD55C");           // Hangul by arithmetic
  EXPECT_EQ(to_nfc("\u212B"), "\u00C5");                       // a singleton
  EXPECT_EQ(to_nfc("a\u0307\u0323"), "\u1EA1\u0307");          // reordered, then composed
  EXPECT_EQ(to_nfc("\u0915\u093C"), "\u0915\u093C");           // excluded from composition
  EXPECT_EQ(to_nfc("a\u0315\u0300"), "\u00E0\u0315");          // the later mark is not blocked
  EXPECT_EQ(to_nfc("\xFF\u0301"), std::string("\xFF\u0301"));  // ill-formed bytes stay
}

TEST(Tokenizer, TakesLongPiecesInAboutLinearTime) {
  const auto path = testing::find_vocabulary("gpt-2");
  ASSERT_TRUE(path.has_value());
  const Tokenizer tokenizer(testing::read_gguf_vocabulary(*path));
  for (const char letter : {'a', ' ', '!', '0'}) {
    const auto begin = std::chrono::steady_clock::now();
    const auto ids = tokenizer.encode(std::string(400000, letter), {});
    EXPECT_FALSE(ids.empty());
    // A quadratic merge of this many letters takes minutes.
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60)) << letter;
  }
}

}  // namespace
}  // namespace rigel::text
