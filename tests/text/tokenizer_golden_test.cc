#include "tests/text/gguf_vocabulary.h"
#include "tests/text/golden.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rigel::text {
namespace {

using testing::DetokenizeCase;
using testing::TokenizeCase;

/// One golden tokenizer; a test of it is skipped where its vocabulary is not on the machine.
class GoldenTokenizer : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto path = testing::find_vocabulary(GetParam());
    if (!path) {
      GTEST_SKIP() << "no vocabulary of " << GetParam() << " here";
    }
    tokenizer_ = std::make_unique<Tokenizer>(testing::read_gguf_vocabulary(*path));
  }

  void expect_ids(const std::vector<TokenizeCase>& cases) const {
    for (const TokenizeCase& c : cases) {
      const EncodeOptions options{.add_special = c.add_special, .parse_special = c.parse_special};
      EXPECT_EQ(tokenizer_->encode(c.text, options), c.ids) << c.kind << ": '" << c.text << "'";
    }
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(GoldenTokenizer, GivesTheIdsOfTheReferences) {
  const std::vector<TokenizeCase> cases = testing::read_tokenize_cases(GetParam());
  ASSERT_GE(cases.size(), 390U);
  expect_ids(cases);
}

TEST_P(GoldenTokenizer, GivesTheIdsOfLlamaCppsOwnList) {
  const std::vector<TokenizeCase> cases = testing::read_llama_cpp_cases(GetParam());
  if (cases.empty()) {
    GTEST_SKIP() << "llama.cpp has no list for " << GetParam();
  }
  // llama.cpp does not normalize to NFC; no text of its list asks for it.
  ASSERT_EQ(cases.size(), 46U);
  expect_ids(cases);
}

TEST_P(GoldenTokenizer, EmitsThePiecesOfTheReferenceDetokenizer) {
  const std::vector<DetokenizeCase> cases = testing::read_detokenize_cases(GetParam());
  if (cases.empty()) {
    GTEST_SKIP() << "no detokenizer cases for " << GetParam();
  }
  ASSERT_EQ(cases.size(), 60U);
  for (const DetokenizeCase& c : cases) {
    Detokenizer detokenizer(*tokenizer_, c.skip_special);
    std::vector<std::string> pieces;
    for (const int32_t id : c.ids) {
      detokenizer.push(id, pieces.emplace_back());
    }
    std::string tail;
    detokenizer.finish(tail);
    EXPECT_EQ(pieces, c.pieces) << c.kind;
    EXPECT_EQ(tail, c.tail) << c.kind;
    EXPECT_EQ(detokenize(*tokenizer_, c.ids, c.skip_special), c.text) << c.kind;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTokenizer,
                         ::testing::Values("smollm2", "gpt-2", "llama-bpe", "qwen2", "gemma3",
                                           "llama-spm", "phi-3"));

}  // namespace
}  // namespace rigel::text
