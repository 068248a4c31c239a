#include "model/checkpoint/safetensors.h"

#include "model/model_file_error.h"
#include "tests/model/gguf_writer.h"
#include "tests/model/scratch_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace rigel {
namespace {

using testing::Bytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::ScratchDirectory;

Bytes file_of(std::string_view header, std::size_t num_data_bytes) {
  Bytes file;
  testing::append_text(file, header);
  for (std::size_t i = 0; i < num_data_bytes; ++i) {
    file.push_back(static_cast<std::byte>(i & 127));
  }
  return file;
}

constexpr std::string_view kHeader =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},)"
    R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"s":{"dtype":"F16","shape":[],"data_offsets":[20,22]}})";
constexpr std::size_t kDataBytes = 22;

std::string safetensors_error(const Bytes& file) {
  return message_of<ModelFileError>([&] { (void)parse_safetensors(file, "x.safetensors"); });
}

TEST(Safetensors, ReadsShapesTypesAndBytes) {
  const Bytes file = file_of(kHeader, kDataBytes);
  const auto tensors = parse_safetensors(file, "x.safetensors");
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_EQ(tensors[0].name, "b");
  EXPECT_EQ(tensors[0].type, SourceType::kBf16);
  EXPECT_EQ(tensors[0].shape, (Shape{2, 3}));
  EXPECT_EQ(tensors[0].bytes.size(), 12U);
  EXPECT_EQ(tensors[0].bytes[0], std::byte{8});
  EXPECT_EQ(tensors[2].shape.rank(), 0);
  EXPECT_EQ(tensors[2].num_rows(), 1);
}

TEST(Safetensors, EveryTruncationAndEveryExtraByteIsAnError) {
  const Bytes whole = file_of(kHeader, kDataBytes);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_THROW((void)parse_safetensors(cut, "x"), ModelFileError) << "cut to " << length;
  }
  EXPECT_THAT(safetensors_error(file_of(kHeader, kDataBytes + 1)),
              HasSubstr("the tensors take 22 bytes, but the file holds 23"));
}

TEST(Safetensors, FlippedBitsNeverCrashTheParser) {
  const Bytes whole = file_of(kHeader, kDataBytes);
  std::mt19937 random(12);
  int num_refused = 0;
  for (int round = 0; round < 10000; ++round) {
    Bytes file = whole;
    file[random() % (8 + kHeader.size())] ^= static_cast<std::byte>(1U << random() % 8);
    try {
      for (const CheckpointTensor& tensor : parse_safetensors(file, "x")) {
        std::vector<float> out(static_cast<std::size_t>(tensor.shape.num_elements()));
        dequantize_rows(tensor, 0, tensor.num_rows(), std::span(out));
      }
    } catch (const ModelFileError&) {
      ++num_refused;
    }
  }
  EXPECT_GT(num_refused, 1000);
}

TEST(Safetensors, DamagedHeadersNameTheTensorAndTheFault) {
  const auto error = [](std::string_view header) { return safetensors_error(file_of(header, 8)); };
  EXPECT_THAT(error("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error("[1]"), HasSubstr("must hold a JSON object"));
  EXPECT_THAT(error(R"({"t":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})"),
              AllOf(HasSubstr("'t' dtype"), HasSubstr("F32, F16 or BF16"), HasSubstr("I64")));
  EXPECT_THAT(error(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})"),
              HasSubstr("8 bytes apart for shape (2)"));
  EXPECT_THAT(error(R"({"t":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})"),
              HasSubstr("cut short"));
  EXPECT_THAT(error(R"({"t":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}})"),
              HasSubstr("positive extents"));
  EXPECT_THAT(
      error(R"({"t":{"dtype":"F32","shape":[1099511627776,1099511627776],"data_offsets":[0,8]}})"),
      HasSubstr("positive extents"));
  EXPECT_THAT(error(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})"),
              HasSubstr("must begin at byte 0"));
  EXPECT_THAT(error(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                    R"("u":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})"),
              HasSubstr("must begin at byte"));
}

TEST(Safetensors, ShardsAreFoundByTheIndex) {
  const SafetensorsCheckpoint checkpoint(RIGEL_TEST_DATA "/tiny/llama-untied");
  EXPECT_EQ(checkpoint.format(), CheckpointFormat::kHuggingFace);
  EXPECT_EQ(checkpoint.tensors().size(), 30U);
  const CheckpointTensor* head = checkpoint.find("lm_head.weight");
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->shape, (Shape{512, 96}));
  EXPECT_EQ(checkpoint.find("model.embed_tokens.weight")->type, SourceType::kBf16);
  std::vector<float> row(96);
  dequantize_rows(*head, 511, 1, std::span(row));
  EXPECT_TRUE(std::all_of(row.begin(), row.end(), [](float x) { return std::abs(x) < 2; }));
  EXPECT_NE(row[0], 0.0F);
}

TEST(Safetensors, AnIndexMustNotLieNorReachOutOfItsDirectory) {
  const ScratchDirectory directory;
  directory.write("one.safetensors", file_of(kHeader, kDataBytes));
  const auto error = [&](std::string_view index) {
    directory.write("model.safetensors.index.json", index);
    return message_of<ModelFileError>([&] { SafetensorsCheckpoint{directory.path()}; });
  };
  EXPECT_EQ(error(R"({"weight_map":{"a":"one.safetensors"}})"), "nothing thrown");
  EXPECT_THAT(error(R"({"weight_map":{"z":"one.safetensors"}})"),
              AllOf(HasSubstr("'z' is missing"), HasSubstr("one.safetensors")));
  EXPECT_THAT(error(R"({"weight_map":{"a":"../one.safetensors"}})"), HasSubstr("same directory"));
  EXPECT_THAT(error(R"({"weight_map":{"a":"two.safetensors"}})"),
              AllOf(HasSubstr("two.safetensors"), HasSubstr("No such file")));
  EXPECT_THAT(error(R"({})"), HasSubstr("weight_map must be an object"));
}

TEST(Safetensors, ADirectoryWithoutWeightsSaysWhatIsLookedFor) {
  const ScratchDirectory directory;
  EXPECT_THAT(message_of<ModelFileError>([&] { SafetensorsCheckpoint{directory.path()}; }),
              HasSubstr("neither model.safetensors nor model.safetensors.index.json"));
}

}  // namespace
}  // namespace rigel
