#include "model/tokenizer_loader.h"

#include "model/model_file_error.h"
#include "tests/model/gguf_writer.h"
#include "tests/model/scratch_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace rigel {
namespace {

using ::testing::ElementsAre;
using testing::GgufWriter;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::message_of;
using testing::ScratchDirectory;
using text::TokenizerModel;
using text::TokenizerSpec;
using text::TokenType;

GgufWriter byte_level(std::string_view pre) {
  GgufWriter writer(3);
  writer.text("general.name", "Some Name")
      .text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", pre)
      .texts("tokenizer.ggml.tokens", {"<s>", "a", "b", "ab", "<e>", "<t>"})
      .numbers<std::int32_t>("tokenizer.ggml.token_type", 5, {3, 1, 1, 1, 3, 4})
      .texts("tokenizer.ggml.merges", {"a b"})
      .u32("tokenizer.ggml.bos_token_id", 0)
      .u32("tokenizer.ggml.eos_token_id", 4)
      .u32("tokenizer.ggml.eot_token_id", 5)
      .u32("tokenizer.ggml.eom_token_id", 4)
      .text("tokenizer.chat_template", "{{ x }}");
  return writer;
}

std::optional<TokenizerSpec> load(const GgufWriter& writer) {
  const auto file = writer.finish();
  return load_tokenizer(parse_gguf(file, "m.gguf").metadata);
}

std::string load_error(const GgufWriter& writer) {
  return message_of<ModelFileError>([&] { (void)load(writer); });
}

TEST(GgufTokenizer, ReadsAByteLevelVocabulary) {
  const TokenizerSpec spec = *load(byte_level("smollm"));
  EXPECT_EQ(spec.model, TokenizerModel::kByteLevelBpe);
  EXPECT_EQ(spec.pre, "smollm");
  EXPECT_THAT(spec.tokens, ElementsAre("<s>", "a", "b", "ab", "<e>", "<t>"));
  EXPECT_EQ(spec.types[0], TokenType::kControl);
  EXPECT_EQ(spec.types[5], TokenType::kUserDefined);
  EXPECT_THAT(spec.merges, ElementsAre("a b"));
  EXPECT_THAT(spec.end_of_generation, ElementsAre(4, 5));
  EXPECT_EQ(spec.bos, 0);
  EXPECT_EQ(spec.unknown, std::nullopt);
  EXPECT_EQ(spec.name, "Some Name");
  EXPECT_EQ(spec.chat_template, "{{ x }}");
  EXPECT_FALSE(spec.add_bos);
  EXPECT_TRUE(spec.add_space_prefix);
}

TEST(GgufTokenizer, BosIsAddedByDefaultForLlamaBpeAndSentencePiece) {
  EXPECT_TRUE(load(byte_level("llama-bpe"))->add_bos);
  EXPECT_TRUE(load(byte_level("llama3"))->add_bos);
  EXPECT_EQ(load(byte_level("llama3"))->pre, "llama-bpe");
  EXPECT_FALSE(load(byte_level("qwen2"))->add_bos);
  GgufWriter told = byte_level("llama-bpe");
  told.boolean("tokenizer.ggml.add_bos_token", false);
  EXPECT_FALSE(load(told)->add_bos);
  GgufWriter pieces(3);
  pieces.text("tokenizer.ggml.model", "llama")
      .texts("tokenizer.ggml.tokens", {"<unk>", "<s>"})
      .numbers<float>("tokenizer.ggml.scores", 6, {0.0F, -2.5F})
      .u32("tokenizer.ggml.bos_token_id", 1);
  const TokenizerSpec spec = *load(pieces);
  EXPECT_EQ(spec.model, TokenizerModel::kSentencePiece);
  EXPECT_EQ(spec.pre, "default");
  EXPECT_THAT(spec.scores, ElementsAre(0.0F, -2.5F));
  EXPECT_THAT(spec.types, IsEmpty());
  EXPECT_TRUE(spec.add_bos);
}

TEST(GgufTokenizer, WhatCannotBeHonouredIsRefused) {
  EXPECT_EQ(load(GgufWriter(3)), std::nullopt);
  EXPECT_THAT(load_error(byte_level("tekken")),
              AllOf(HasSubstr("tokenizer.ggml.pre"), HasSubstr("tekken"), HasSubstr("llama-bpe")));
  GgufWriter model(3);
  model.text("tokenizer.ggml.model", "bert");
  EXPECT_THAT(load_error(model), HasSubstr("must be gpt2 or llama, got bert"));
  GgufWriter lengths(3);
  lengths.text("tokenizer.ggml.model", "llama")
      .texts("tokenizer.ggml.tokens", {"a", "b"})
      .numbers<float>("tokenizer.ggml.scores", 6, {0.0F});
  EXPECT_THAT(load_error(lengths), HasSubstr("a list of 2 entries, one a token, got 1"));
  GgufWriter ids = byte_level("gpt-2");
  ids.u32("tokenizer.ggml.padding_token_id", 6);
  EXPECT_THAT(load_error(ids), HasSubstr("must be a token id below 6, got 6"));
}

constexpr std::string_view kByteLevel =
    R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})";
constexpr std::string_view kSmollm =
    R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},)"
    R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}]})";

/// With `\\` doubled, as it stands in JSON.
std::string split_by(std::string_view digits) {
  return R"j({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|)j" +
         std::string(digits) +
         R"j(| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},)j"
         R"j({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]})j";
}

std::string tokenizer_json(std::string_view pre, std::string_view extra, std::string_view model) {
  return std::string(R"({"added_tokens":[)") +
         R"({"id":3,"content":"<s>","special":true,"normalized":false,"lstrip":false},)" +
         R"({"id":6,"content":"<tool>","special":false}],)" + std::string(extra) +
         R"("pre_tokenizer":)" + std::string(pre) + R"(,"model":{"type":"BPE",)" +
         std::string(model) +
         R"("vocab":{"a":0,"b":1,"ab":2,"\u0120a":4},"merges":[["a","b"],"\u0120 a"]}})";
}

TEST(HuggingFaceTokenizer, ReadsVocabularyMergesSpecialTokensAndTemplate) {
  const ScratchDirectory directory;
  directory.write("tokenizer.json", tokenizer_json(kSmollm, "", ""));
  directory.write(
      "tokenizer_config.json",
      R"({"bos_token":{"content":"<s>"},"eos_token":"<s>","pad_token":null,)"
      R"("chat_template":[{"name":"tool","template":"t"},{"name":"default","template":"d"}]})");
  const TokenizerSpec spec = *load_tokenizer(directory.path());
  EXPECT_EQ(spec.pre, "smollm");
  EXPECT_THAT(spec.tokens, ElementsAre("a", "b", "ab", "<s>",
                                       "\xC4\xA0"
                                       "a",
                                       "", "<tool>"));
  EXPECT_THAT(spec.types, ElementsAre(TokenType::kNormal, TokenType::kNormal, TokenType::kNormal,
                                      TokenType::kControl, TokenType::kNormal, TokenType::kUnused,
                                      TokenType::kUserDefined));
  EXPECT_THAT(spec.merges, ElementsAre("a b", "\xC4\xA0 a"));
  EXPECT_EQ(spec.bos, 3);
  EXPECT_THAT(spec.end_of_generation, ElementsAre(3));
  EXPECT_FALSE(spec.add_bos);
  EXPECT_EQ(spec.chat_template, "d");
  directory.write("chat_template.jinja", "file");
  EXPECT_EQ(load_tokenizer(directory.path())->chat_template, "file");
}

TEST(HuggingFaceTokenizer, RecognisesPreTokenizersByTheirDefinition) {
  const ScratchDirectory directory;
  const auto pre = [&](std::string_view definition, std::string_view extra,
                       std::string_view model) {
    directory.write("tokenizer.json", tokenizer_json(definition, extra, model));
    return load_tokenizer(directory.path())->pre;
  };
  EXPECT_EQ(pre(kByteLevel, R"("normalizer":null,)", ""), "gpt-2");
  EXPECT_EQ(pre(split_by(R"(\\p{N}{1,3})"), "", R"("ignore_merges":true,)"), "llama-bpe");
  EXPECT_EQ(pre(split_by(R"(\\p{N})"), R"("normalizer":{"type":"NFC"},)", ""), "qwen2");
}

TEST(HuggingFaceTokenizer, AnUnknownOrInconsistentDefinitionIsRefused) {
  const ScratchDirectory directory;
  const auto error = [&](std::string_view definition, std::string_view extra,
                         std::string_view model) {
    directory.write("tokenizer.json", tokenizer_json(definition, extra, model));
    return message_of<ModelFileError>([&] { (void)load_tokenizer(directory.path()); });
  };
  EXPECT_THAT(error(R"({"type":"Whitespace"})", "", ""),
              AllOf(HasSubstr("tokenizer.json: pre_tokenizer must be"), HasSubstr("Whitespace")));
  EXPECT_THAT(error(split_by(R"(\\p{N}{1,2})"), "", ""), HasSubstr("pre_tokenizer must be"));
  EXPECT_THAT(error(R"({"type":"ByteLevel","add_prefix_space":true})", "", ""),
              HasSubstr("pre_tokenizer must be"));
  EXPECT_THAT(error(split_by(R"(\\p{N}{1,3})"), "", ""), HasSubstr("ignore_merges must be true"));
  EXPECT_THAT(error(split_by(R"(\\p{N})"), "", ""), HasSubstr("normalizer must be NFC"));
  EXPECT_THAT(error(kByteLevel, R"("normalizer":{"type":"Lowercase"},)", ""),
              HasSubstr("normalizer must be null"));
  EXPECT_THAT(error(kByteLevel, "", R"("byte_fallback":true,)"), HasSubstr("byte_fallback"));
  EXPECT_THAT(error(kByteLevel, "", R"("end_of_word_suffix":"</w>",)"),
              HasSubstr("end_of_word_suffix must be null"));
}

TEST(HuggingFaceTokenizer, ATemplateProcessingDecidesWhetherBosIsAdded) {
  const ScratchDirectory directory;
  directory.write(
      "tokenizer.json",
      tokenizer_json(kByteLevel,
                     R"("post_processor":{"type":"Sequence","processors":[{"type":"ByteLevel"},)"
                     R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},)"
                     R"({"Sequence":{"id":"A"}}]}]},)",
                     ""));
  directory.write("tokenizer_config.json", R"({"add_bos_token":false,"bos_token":"<s>"})");
  const TokenizerSpec spec = *load_tokenizer(directory.path());
  EXPECT_TRUE(spec.add_bos);
  EXPECT_FALSE(spec.add_eos);
}

TEST(HuggingFaceTokenizer, ADirectoryWithoutTokenizerFilesHasNone) {
  EXPECT_EQ(load_tokenizer(std::filesystem::path(RIGEL_TEST_DATA "/tiny/llama-untied")),
            std::nullopt);
  const ScratchDirectory directory;
  directory.write("tokenizer.model", "x");
  EXPECT_THAT(message_of<ModelFileError>([&] { (void)load_tokenizer(directory.path()); }),
              HasSubstr("tokenizer.model without tokenizer.json"));
}

}  // namespace
}  // namespace rigel
