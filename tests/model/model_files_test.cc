#include "model/model_files.h"

#include "model/checkpoint/gguf.h"
#include "model/model_file_error.h"
#include "tests/model/gguf_writer.h"
#include "tests/model/scratch_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace rigel {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::message_of;
using testing::ScratchDirectory;

TEST(ModelFiles, AHuggingFaceDirectoryOpensWithoutATokenizer) {
  const ModelFiles files = open_model_files(RIGEL_TEST_DATA "/tiny/mistral-window/");
  EXPECT_EQ(files.name, "mistral-window");
  EXPECT_EQ(files.config.architecture, "mistral");
  EXPECT_THAT(files.config.eos_ids, ElementsAre(2));
  EXPECT_EQ(files.tokenizer, std::nullopt);
  EXPECT_NE(files.checkpoint->find("model.norm.weight"), nullptr);
}

GgufWriter small_model() {
  GgufWriter writer(3);
  writer.text("general.architecture", "llama")
      .u32("llama.embedding_length", 8)
      .u32("llama.block_count", 1)
      .u32("llama.attention.head_count", 2)
      .u32("llama.feed_forward_length", 8)
      .u32("llama.context_length", 64)
      .u32("llama.vocab_size", 3)
      .text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", "gpt-2")
      .texts("tokenizer.ggml.tokens", {"a", "b", "c"})
      .texts("tokenizer.ggml.merges", {});
  return writer;
}

TEST(ModelFiles, AGgufFileOpensWithItsTokenizerAndOneListOfEndTokens) {
  const ScratchDirectory directory;
  GgufWriter writer = small_model();
  writer.u32("tokenizer.ggml.eos_token_id", 2).u32("tokenizer.ggml.eot_token_id", 1);
  const ModelFiles files = open_model_files(directory.write("small.gguf", writer.finish()));
  EXPECT_EQ(files.name, "small");
  ASSERT_TRUE(files.tokenizer);
  EXPECT_THAT(files.config.eos_ids, ElementsAre(1, 2));
  EXPECT_THAT(files.tokenizer->end_of_generation, ElementsAre(1, 2));
}

TEST(ModelFiles, AVocabularyWithoutWeightsIsEnoughForATokenizer) {
  const ScratchDirectory directory;
  GgufWriter writer(2);
  writer.text("general.architecture", "anything")
      .text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", "qwen2")
      .texts("tokenizer.ggml.tokens", {"a"})
      .texts("tokenizer.ggml.merges", {});
  const auto path = directory.write("vocab.gguf", writer.finish());
  EXPECT_EQ(open_tokenizer(path)->pre, "qwen2");
  EXPECT_THROW((void)open_model_files(path), ModelFileError);
}

TEST(ModelFiles, WhatIsNoModelIsExplained) {
  const ScratchDirectory directory;
  const auto error = [](const fs::path& path) {
    return message_of<ModelFileError>([&] { (void)open_model_files(path); });
  };
  EXPECT_THAT(error(directory.path() / "nothing"), HasSubstr("no such file or directory"));
  EXPECT_THAT(error(directory.path()), HasSubstr("no config.json in this directory"));
  EXPECT_THAT(error(directory.write("x.txt", "GGU")), HasSubstr("not a GGUF file"));
  EXPECT_THAT(error(directory.write("x.gguf", "GGUF")), HasSubstr("the file ends inside"));
  GgufWriter tokens(3);
  tokens = small_model();
  tokens.u32("llama.attention.head_count_kv", 3);
  EXPECT_THAT(error(directory.write("y.gguf", tokens.finish())), HasSubstr("must divide the 2"));
}

TEST(ModelFiles, ATokenizerLargerThanTheVocabularyIsRefused) {
  const ScratchDirectory directory;
  GgufWriter writer(3);
  writer.text("general.architecture", "llama")
      .u32("llama.embedding_length", 8)
      .u32("llama.block_count", 1)
      .u32("llama.attention.head_count", 2)
      .u32("llama.feed_forward_length", 8)
      .u32("llama.context_length", 64)
      .u32("llama.vocab_size", 2)
      .text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", "gpt-2")
      .texts("tokenizer.ggml.tokens", {"a", "b", "c"})
      .texts("tokenizer.ggml.merges", {});
  EXPECT_THAT(message_of<ModelFileError>(
                  [&] { (void)open_model_files(directory.write("m.gguf", writer.finish())); }),
              HasSubstr("3 tokens, more than the model's vocabulary of 2"));
}

/// FNV-1a, 64 bits.
std::uint64_t checksum(const std::vector<float>& values) {
  std::vector<unsigned char> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const unsigned char byte : bytes) {
    hash = (hash ^ byte) * 0x100000001b3U;
  }
  return hash;
}

/// Checksums of what the gguf package (0.19.0) dequantizes: Q8_0, Q4_1, Q4_1, F32.
TEST(ModelFiles, TheDefaultModelDequantizesToTheReferencesBits) {
  const fs::path path = fs::path(RIGEL_TEST_DATA) / "../../models/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!fs::exists(path)) {
    GTEST_SKIP() << "the default model has not been fetched";
  }
  const ModelFiles files = open_model_files(path);
  EXPECT_EQ(files.config.num_layers, 30);
  EXPECT_TRUE(files.config.tie_word_embeddings);
  EXPECT_EQ(files.tokenizer->pre, "smollm");
  const std::pair<const char*, std::uint64_t> expected[] = {
      {"token_embd.weight", 0x0c071e001805fcd6U},
      {"blk.0.attn_q.weight", 0x6aafdca3db38d64cU},
      {"blk.29.ffn_down.weight", 0x0256b756d9353ebaU},
      {"output_norm.weight", 0xea814bed6299e304U},
  };
  for (const auto& [name, hash] : expected) {
    const CheckpointTensor* tensor = files.checkpoint->find(name);
    ASSERT_NE(tensor, nullptr) << name;
    std::vector<float> values(static_cast<std::size_t>(tensor->shape.num_elements()));
    dequantize_rows(*tensor, 0, tensor->num_rows(), std::span(values));
    EXPECT_EQ(checksum(values), hash) << name;
  }
}

}  // namespace
}  // namespace rigel
