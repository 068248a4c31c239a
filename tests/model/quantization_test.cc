#include "model/checkpoint/quantization.h"

#include "model/checkpoint/gguf.h"
#include "tests/model/gguf_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <vector>

namespace rigel {
namespace {

using testing::Bytes;

/// IEEE half from its fields, in double.
double half(const std::byte* at) {
  const int bits = std::to_integer<int>(at[0]) | std::to_integer<int>(at[1]) << 8;
  const int exponent = bits >> 10 & 31;
  const double fraction = (bits & 1023) / 1024.0;
  const double value =
      exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1.0 + fraction, exponent - 15);
  return bits & 0x8000 ? -value : value;
}

int u8(const std::byte* at) {
  return std::to_integer<int>(*at);
}
int i8(const std::byte* at) {
  return u8(at) < 128 ? u8(at) : u8(at) - 256;
}
int nibble(const std::byte* at, bool high) {
  return high ? u8(at) / 16 : u8(at) % 16;
}
int bit(const std::byte* bytes, int index) {
  return u8(bytes + index / 8) >> index % 8 & 1;
}

/// Six-bit scale (or minimum) `group` of the 12 packed bytes, written out as the table of ggml's documentation of Q4_K.
int six_bits(const std::byte* packed, int group, bool is_minimum) {
  if (group < 4) {
    return u8(packed + group + (is_minimum ? 4 : 0)) % 64;
  }
  const int low = nibble(packed + 8 + group - 4, is_minimum);
  const int high = u8(packed + group - 4 + (is_minimum ? 4 : 0)) / 64;
  return low + 16 * high;
}

/// Element `e` of a block, one at a time, from the format's description.
double element(SourceType type, const std::byte* block, int e) {
  switch (type) {
    case SourceType::kQ4_0:
      return half(block) * (nibble(block + 2 + e % 16, e >= 16) - 8);
    case SourceType::kQ4_1:
      return half(block) * nibble(block + 4 + e % 16, e >= 16) + half(block + 2);
    case SourceType::kQ5_0:
      return half(block) * (nibble(block + 6 + e % 16, e >= 16) + 16 * bit(block + 2, e) - 16);
    case SourceType::kQ5_1:
      return half(block) * (nibble(block + 8 + e % 16, e >= 16) + 16 * bit(block + 4, e)) +
             half(block + 2);
    case SourceType::kQ8_0:
      return half(block) * i8(block + 2 + e);
    case SourceType::kQ4_K:
      return half(block) * six_bits(block + 4, e / 32, false) *
                 nibble(block + 16 + e / 64 * 32 + e % 32, e % 64 >= 32) -
             half(block + 2) * six_bits(block + 4, e / 32, true);
    case SourceType::kQ5_K: {
      const int quant = nibble(block + 48 + e / 64 * 32 + e % 32, e % 64 >= 32) +
                        16 * (u8(block + 16 + e % 32) >> e / 32 & 1);
      return half(block) * six_bits(block + 4, e / 32, false) * quant -
             half(block + 2) * six_bits(block + 4, e / 32, true);
    }
    case SourceType::kQ6_K: {
      const int in_half = e % 128;
      const int low = nibble(block + e / 128 * 64 + in_half % 64, in_half >= 64);
      const int high = u8(block + 128 + e / 128 * 32 + in_half % 32) >> in_half / 32 * 2 & 3;
      return half(block + 208) * i8(block + 192 + e / 16) * (low + 16 * high - 32);
    }
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

/// Offsets of the half-precision scales, which must not be infinite here.
std::vector<int> scale_offsets(SourceType type) {
  switch (type) {
    case SourceType::kQ6_K:
      return {208};
    case SourceType::kQ4_0:
    case SourceType::kQ5_0:
    case SourceType::kQ8_0:
      return {0};
    default:
      return {0, 2};
  }
}

Bytes random_blocks(SourceType type, int num_blocks, std::mt19937& random) {
  const int block_bytes = block_layout(type).num_bytes;
  Bytes bytes(static_cast<std::size_t>(num_blocks * block_bytes));
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(random() & 255);
  }
  for (int block = 0; block < num_blocks; ++block) {
    for (const int offset : scale_offsets(type)) {
      std::byte& top = bytes[static_cast<std::size_t>(block * block_bytes + offset + 1)];
      top &= std::byte{0xBF};  // exponent at most 15: no infinity, subnormals stay
    }
  }
  return bytes;
}

constexpr SourceType kQuantized[] = {SourceType::kQ4_0, SourceType::kQ4_1, SourceType::kQ5_0,
                                     SourceType::kQ5_1, SourceType::kQ8_0, SourceType::kQ4_K,
                                     SourceType::kQ5_K, SourceType::kQ6_K};

class Quantization : public ::testing::TestWithParam<SourceType> {};

TEST_P(Quantization, MatchesTheFormatsDescriptionInDoubleAtOddRows) {
  const SourceType type = GetParam();
  const BlockLayout layout = block_layout(type);
  std::mt19937 random(7);
  constexpr int kBlocksPerRow = 3;
  constexpr int kRows = 5;
  const Bytes bytes = random_blocks(type, kRows * kBlocksPerRow, random);
  const std::int64_t columns = kBlocksPerRow * layout.num_elements;
  const CheckpointTensor tensor{"x", {kRows, columns}, type, bytes};
  constexpr int kFirst = 1;
  constexpr int kCount = 3;
  std::vector<float> out(static_cast<std::size_t>(kCount * columns + 1), -77.0F);
  dequantize_rows(tensor, kFirst, kCount, std::span(out).first(out.size() - 1));
  EXPECT_EQ(out.back(), -77.0F) << "written past the end";
  for (std::size_t i = 0; i + 1 < out.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i) + kFirst * columns;
    const std::byte* block = bytes.data() + index / layout.num_elements * layout.num_bytes;
    const double expected = element(type, block, static_cast<int>(index % layout.num_elements));
    ASSERT_EQ(out[i], static_cast<float>(expected)) << name_of(type) << " element " << i;
  }
}

TEST_P(Quantization, Bfloat16IsFloat32RoundedToNearestEven) {
  const SourceType type = GetParam();
  std::mt19937 random(8);
  constexpr int kBlocks = 75;  // more than one internal piece, and no multiple of it
  const Bytes bytes = random_blocks(type, kBlocks, random);
  const std::int64_t columns = kBlocks * block_layout(type).num_elements;
  const CheckpointTensor tensor{"x", {1, columns}, type, bytes};
  std::vector<float> floats(static_cast<std::size_t>(columns));
  std::vector<bf16> halves(static_cast<std::size_t>(columns));
  dequantize_rows(tensor, 0, 1, std::span(floats));
  dequantize_rows(tensor, 0, 1, std::span(halves));
  for (std::size_t i = 0; i < floats.size(); ++i) {
    const float got = static_cast<float>(halves[i]);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &floats[i], 4);
    const std::uint32_t below = bits & 0xFFFF0000U;
    const std::uint32_t rest = bits & 0xFFFFU;
    const bool up = rest > 0x8000U || (rest == 0x8000U && (below >> 16 & 1U) != 0);
    const std::uint32_t expected = below + (up ? 0x10000U : 0U);
    std::uint32_t got_bits = 0;
    std::memcpy(&got_bits, &got, 4);
    ASSERT_EQ(got_bits, expected) << name_of(type) << " element " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(AllTypes, Quantization, ::testing::ValuesIn(kQuantized),
                         [](const auto& instance) { return std::string(name_of(instance.param)); });

TEST(QuantizationGolden, EqualsTheReferencePackageBitForBit) {
  const std::string directory = RIGEL_TEST_DATA "/checkpoint/";
  const GgufCheckpoint checkpoint(directory + "blocks.gguf");
  std::ifstream file(directory + "blocks.f32", std::ios::binary);
  for (const SourceType type : kQuantized) {
    const CheckpointTensor* tensor = checkpoint.find("x." + std::string(name_of(type)));
    ASSERT_NE(tensor, nullptr) << name_of(type);
    ASSERT_EQ(tensor->type, type);
    ASSERT_EQ(tensor->shape, (Shape{2, 256}));
    std::vector<float> expected(512);
    file.read(reinterpret_cast<char*>(expected.data()), 512 * sizeof(float));
    ASSERT_TRUE(file);
    std::vector<float> out(512);
    dequantize_rows(*tensor, 0, 2, std::span(out));
    EXPECT_EQ(std::memcmp(out.data(), expected.data(), 512 * sizeof(float)), 0) << name_of(type);
  }
}

TEST(QuantizationFloats, F32F16AndBf16KeepTheirValues) {
  const float values[] = {0.0F, -1.5F, 65504.0F, 0.099975586F, 5.9604645e-8F};
  Bytes f32;
  Bytes f16_bytes;
  Bytes bf16_bytes;
  const std::uint16_t f16_bits[] = {0, 0xBE00, 0x7BFF, 0x2E66, 0x0001};
  for (int i = 0; i < 5; ++i) {
    testing::append(f32, values[i]);
    testing::append(f16_bytes, f16_bits[i]);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &values[i], 4);
    testing::append(bf16_bytes, static_cast<std::uint16_t>(bits >> 16));
  }
  std::vector<float> out(5);
  dequantize_rows({"x", {5}, SourceType::kF32, f32}, 0, 1, std::span(out));
  EXPECT_THAT(out, ::testing::ElementsAreArray(values));
  dequantize_rows({"x", {5}, SourceType::kF16, f16_bytes}, 0, 1, std::span(out));
  EXPECT_THAT(out, ::testing::ElementsAreArray(values));
  dequantize_rows({"x", {5}, SourceType::kBf16, bf16_bytes}, 0, 1, std::span(out));
  EXPECT_EQ(out[1], -1.5F);
  EXPECT_NEAR(out[2], 65504.0F, 256.0F);
  std::vector<bf16> same(5);
  dequantize_rows({"x", {5}, SourceType::kBf16, bf16_bytes}, 0, 1, std::span(same));
  EXPECT_EQ(std::memcmp(same.data(), bf16_bytes.data(), 10), 0);
}

TEST(QuantizationFloats, RowsOutsideTheTensorAreABug) {
  const Bytes bytes(32);
  const CheckpointTensor tensor{"x", {2, 4}, SourceType::kF32, bytes};
  std::vector<float> out(8);
  EXPECT_THROW(dequantize_rows(tensor, 1, 2, std::span(out)), CheckError);
  EXPECT_THROW(dequantize_rows(tensor, -1, 1, std::span(out).first(4)), CheckError);
  EXPECT_THROW(dequantize_rows(tensor, 0, 2, std::span(out).first(7)), CheckError);
}

}  // namespace
}  // namespace rigel
