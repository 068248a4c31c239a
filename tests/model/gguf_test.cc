#include "model/checkpoint/gguf.h"

#include "model/model_file_error.h"
#include "tests/model/gguf_writer.h"
#include "tests/model/scratch_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace rigel {
namespace {

using testing::Bytes;
using ::testing::ElementsAre;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::message_of;

Bytes filled(std::size_t num_bytes, int first) {
  Bytes bytes(num_bytes);
  for (std::size_t i = 0; i < num_bytes; ++i) {
    bytes[i] = static_cast<std::byte>((first + static_cast<int>(i)) & 127);
  }
  return bytes;
}

GgufWriter sample(std::uint32_t version) {
  GgufWriter writer(version);
  writer.text("general.architecture", "llama")
      .u32("llama.block_count", 3)
      .f32("llama.rope.freq_base", 1e5F)
      .boolean("flag", true)
      .scalar<std::int8_t>("small", 1, -5)
      .scalar<std::uint64_t>("large", 10, 1ULL << 40)
      .scalar<double>("fine", 12, 0.25)
      .texts("words", {"a", "",
                       "\xE2\x96\x81"
                       "b"})
      .numbers<float>("scores", 6, {0.5F, -1.0F})
      .numbers<std::int32_t>("types", 5, {1, 6})
      .tensor("plain", {3, 2}, 0, filled(24, 1))
      .tensor("quants", {32, 2}, 8, filled(68, 2))
      .tensor("vector", {5}, 30, filled(10, 3));
  return writer;
}

std::string gguf_error(const Bytes& file) {
  return message_of<ModelFileError>([&] { (void)parse_gguf(file, "x.gguf"); });
}

TEST(Gguf, ReadsMetadataOfEveryTypeInVersions2And3) {
  for (const std::uint32_t version : {2U, 3U}) {
    const Bytes file = sample(version).finish();
    const GgufMetadata metadata = parse_gguf(file, "x.gguf").metadata;
    EXPECT_EQ(metadata.string("general.architecture"), "llama");
    EXPECT_EQ(metadata.integer("llama.block_count"), 3);
    EXPECT_EQ(metadata.number("llama.block_count"), 3.0);
    EXPECT_EQ(metadata.number("llama.rope.freq_base"), 1e5);
    EXPECT_EQ(metadata.boolean("flag"), true);
    EXPECT_EQ(metadata.integer("small"), -5);
    EXPECT_EQ(metadata.integer("large"), std::int64_t{1} << 40);
    EXPECT_EQ(metadata.number("fine"), 0.25);
    EXPECT_THAT(*metadata.strings("words"), ElementsAre("a", "",
                                                        "\xE2\x96\x81"
                                                        "b"));
    EXPECT_THAT(*metadata.numbers("scores"), ElementsAre(0.5, -1.0));
    EXPECT_THAT(*metadata.integers("types"), ElementsAre(1, 6));
    EXPECT_EQ(metadata.string("absent"), std::nullopt);
  }
}

TEST(Gguf, TensorsHaveTheirShapeOutermostFirstAndTheirBytes) {
  const Bytes file = sample(3).finish();
  const auto tensors = parse_gguf(file, "x.gguf").tensors;
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_EQ(tensors[0].name, "plain");
  EXPECT_EQ(tensors[0].shape, (Shape{2, 3}));
  EXPECT_EQ(tensors[1].type, SourceType::kQ8_0);
  EXPECT_EQ(tensors[1].num_rows(), 2);
  EXPECT_EQ(tensors[2].shape, (Shape{5}));
  const Bytes expected[] = {filled(24, 1), filled(68, 2), filled(10, 3)};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(std::equal(tensors[i].bytes.begin(), tensors[i].bytes.end(), expected[i].begin(),
                           expected[i].end()));
  }
}

TEST(Gguf, AnotherAlignmentIsHonoured) {
  GgufWriter writer(3);
  writer.u32("general.alignment", 128)
      .tensor("a", {3}, 0, filled(12, 1))
      .tensor("b", {3}, 0, filled(12, 9));
  const Bytes file = writer.finish(/*alignment=*/128);
  const auto tensors = parse_gguf(file, "x.gguf").tensors;
  EXPECT_EQ((tensors[1].bytes.data() - file.data()) % 128, 0);
  EXPECT_EQ(tensors[1].bytes[0], std::byte{9});
}

TEST(Gguf, AValueOfAnotherTypeNamesKeyAndBothTypes) {
  const Bytes file = sample(3).finish();
  const GgufMetadata metadata = parse_gguf(file, "x.gguf").metadata;
  EXPECT_THAT(message_of<ModelFileError>([&] { (void)metadata.integer("words"); }),
              AllOf(HasSubstr("'words' must be an integer"), HasSubstr("array of string")));
  EXPECT_THAT(message_of<ModelFileError>([&] { (void)metadata.string("flag"); }),
              HasSubstr("'flag' must be a string, got bool"));
  EXPECT_THAT(message_of<ModelFileError>([&] { (void)metadata.strings("types"); }),
              HasSubstr("got an array of int32"));
}

TEST(Gguf, EveryTruncationIsAnErrorAndNeverReadsBeyondTheEnd) {
  const Bytes whole = sample(3).finish();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_THROW((void)parse_gguf(cut, "x.gguf"), ModelFileError) << "cut to " << length;
  }
}

TEST(Gguf, ATruncatedFileSaysWhatAndWhere) {
  Bytes file = sample(3).finish();
  file.resize(file.size() - 1);
  EXPECT_THAT(gguf_error(file),
              AllOf(HasSubstr("x.gguf"), HasSubstr("'vector'"), HasSubstr("cut short")));
  file.resize(260);
  EXPECT_THAT(gguf_error(file), AllOf(HasSubstr("at byte"), HasSubstr("the file ends inside")));
}

/// Whatever the bytes are, parsing ends with contents inside the file or with ModelFileError; sanitizers see the rest.
TEST(Gguf, FlippedBitsNeverCrashTheParser) {
  const Bytes whole = sample(3).finish();
  std::mt19937 random(11);
  int num_refused = 0;
  for (int round = 0; round < 20000; ++round) {
    Bytes file = whole;
    const int num_flips = 1 + static_cast<int>(random() % 3);
    for (int flip = 0; flip < num_flips; ++flip) {
      file[random() % file.size()] ^= static_cast<std::byte>(1U << random() % 8);
    }
    try {
      const GgufContents contents = parse_gguf(file, "x.gguf");
      for (const CheckpointTensor& tensor : contents.tensors) {
        std::vector<float> out(static_cast<std::size_t>(tensor.shape.num_elements()));
        dequantize_rows(tensor, 0, tensor.num_rows(), std::span(out));
      }
      for (const GgufEntry& entry : contents.metadata.entries()) {
        try {
          (void)contents.metadata.strings(entry.key);
        } catch (const ModelFileError&) {
        }
      }
    } catch (const ModelFileError&) {
      ++num_refused;
    }
  }
  EXPECT_GT(num_refused, 1000);
}

TEST(Gguf, WrongMagicVersionAndByteOrderAreNamed) {
  Bytes file = sample(3).finish();
  file[0] = std::byte{'X'};
  EXPECT_THAT(gguf_error(file), HasSubstr("not a GGUF file"));
  EXPECT_THAT(gguf_error(sample(1).finish()), HasSubstr("version 1 is not supported"));
  EXPECT_THAT(gguf_error(sample(0x03000000).finish()), HasSubstr("big-endian"));
}

TEST(Gguf, DamagedTensorsAreNamed) {
  const auto error = [](std::vector<std::uint64_t> dims, std::uint32_t type, std::size_t bytes) {
    GgufWriter writer(3);
    writer.tensor("bad", std::move(dims), type, Bytes(bytes));
    return gguf_error(writer.finish());
  };
  EXPECT_THAT(error({4}, 10, 64),
              AllOf(HasSubstr("'bad'"), HasSubstr("GGML type 10"), HasSubstr("Q6_K")));
  EXPECT_THAT(error({33}, 8, 64), HasSubstr("no whole blocks of 32 (Q8_0)"));
  EXPECT_THAT(error({0}, 0, 64), HasSubstr("impossible extent: 0"));
  EXPECT_THAT(error({1ULL << 40, 1ULL << 40}, 0, 64), HasSubstr("impossible extent"));
  EXPECT_THAT(error({1, 1, 1, 1, 1}, 0, 64), HasSubstr("5 dimensions"));
  EXPECT_THAT(error({32}, 0, 64), HasSubstr("lies outside the file"));
}

TEST(Gguf, AKeyOrTensorThatOccursTwiceIsRefused) {
  GgufWriter keys(3);
  keys.u32("a", 1).u32("a", 2);
  EXPECT_THAT(gguf_error(keys.finish()), HasSubstr("'a' occurs twice"));
  GgufWriter tensors(3);
  tensors.tensor("t", {1}, 0, Bytes(4)).tensor("t", {1}, 0, Bytes(4));
  const testing::ScratchDirectory directory;
  const auto path = directory.write("m.gguf", tensors.finish());
  EXPECT_THAT(message_of<ModelFileError>([&] { GgufCheckpoint{path}; }),
              HasSubstr("tensor 't' occurs twice"));
}

TEST(Gguf, ACheckpointFindsTensorsByNameAndCountsBytes) {
  const testing::ScratchDirectory directory;
  const GgufCheckpoint checkpoint(directory.write("m.gguf", sample(2).finish()));
  EXPECT_THAT(checkpoint.names(), ElementsAre("plain", "quants", "vector"));
  ASSERT_NE(checkpoint.find("quants"), nullptr);
  EXPECT_EQ(checkpoint.find("quants")->bytes[0], std::byte{2});
  EXPECT_EQ(checkpoint.find("quant"), nullptr);
  EXPECT_EQ(checkpoint.total_bytes(), 24 + 68 + 10);
}

TEST(Gguf, MissingEmptyAndSplitFilesAreExplained) {
  const testing::ScratchDirectory directory;
  EXPECT_THAT(message_of<ModelFileError>([&] { GgufCheckpoint{directory.path() / "none.gguf"}; }),
              AllOf(HasSubstr("none.gguf"), HasSubstr("No such file")));
  const auto empty = directory.write("empty.gguf", std::string_view());
  EXPECT_THAT(message_of<ModelFileError>([&] { GgufCheckpoint{empty}; }), HasSubstr("is empty"));
  EXPECT_THAT(message_of<ModelFileError>([&] { GgufCheckpoint{directory.path()}; }),
              HasSubstr("not a regular file"));
  GgufWriter writer(3);
  writer.scalar<std::uint16_t>("split.count", 2, 4);
  const auto split = directory.write("split.gguf", writer.finish());
  EXPECT_THAT(message_of<ModelFileError>([&] { GgufCheckpoint{split}; }),
              HasSubstr("split GGUF files are not supported"));
}

}  // namespace
}  // namespace rigel
