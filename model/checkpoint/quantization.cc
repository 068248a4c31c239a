// GGML's block formats, from ggml/src/ggml-common.h (layout) and ggml-quants.c (meaning). All fields are little-endian; `d` and
// `m` are IEEE halves. Blocks are packed without padding and read by memcpy, as their sizes keep no alignment.

#include "model/checkpoint/quantization.h"

#include "tensor/error.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace rigel {
namespace {

using Half = std::uint16_t;

float to_float(Half bits) {
  return static_cast<float>(std::bit_cast<f16>(bits));
}

/// The unquantized types, as blocks of one element.
template <class T>
struct Plain {
  static constexpr int kElements = 1;
  T value;
  void decode(float* out) const { out[0] = static_cast<float>(value); }
};

/// x = d * (q - 8). Low nibbles are elements 0-15, high nibbles 16-31.
struct BlockQ4_0 {
  static constexpr int kElements = 32;
  Half d;
  std::uint8_t q[16];
  void decode(float* out) const {
    const float scale = to_float(d);
    for (int i = 0; i < 16; ++i) {
      out[i] = scale * static_cast<float>((q[i] & 15) - 8);
      out[i + 16] = scale * static_cast<float>((q[i] >> 4) - 8);
    }
  }
};

/// x = d * q + m, nibbles as in Q4_0.
struct BlockQ4_1 {
  static constexpr int kElements = 32;
  Half d;
  Half m;
  std::uint8_t q[16];
  void decode(float* out) const {
    const float scale = to_float(d);
    const float minimum = to_float(m);
    for (int i = 0; i < 16; ++i) {
      out[i] = scale * static_cast<float>(q[i] & 15) + minimum;
      out[i + 16] = scale * static_cast<float>(q[i] >> 4) + minimum;
    }
  }
};

/// The five-bit quants of Q5_0 and Q5_1: nibbles as in Q4_0, the fifth bit of element e is bit e of `high`.
struct FiveBits {
  std::uint8_t high[4];
  std::uint8_t q[16];
  void decode(int* out) const {
    std::uint32_t bits = 0;
    std::memcpy(&bits, high, sizeof(bits));
    for (unsigned i = 0; i < 16; ++i) {
      out[i] = (q[i] & 15) | static_cast<int>((bits >> i & 1U) << 4);
      out[i + 16] = (q[i] >> 4) | static_cast<int>((bits >> (i + 16) & 1U) << 4);
    }
  }
};

/// x = d * (q - 16), q of five bits.
struct BlockQ5_0 {
  static constexpr int kElements = 32;
  Half d;
  FiveBits q;
  void decode(float* out) const {
    const float scale = to_float(d);
    int quants[32];
    q.decode(quants);
    for (int i = 0; i < 32; ++i) {
      out[i] = scale * static_cast<float>(quants[i] - 16);
    }
  }
};

/// x = d * q + m, q of five bits.
struct BlockQ5_1 {
  static constexpr int kElements = 32;
  Half d;
  Half m;
  FiveBits q;
  void decode(float* out) const {
    const float scale = to_float(d);
    const float minimum = to_float(m);
    int quants[32];
    q.decode(quants);
    for (int i = 0; i < 32; ++i) {
      out[i] = scale * static_cast<float>(quants[i]) + minimum;
    }
  }
};

/// x = d * q, q a signed byte.
struct BlockQ8_0 {
  static constexpr int kElements = 32;
  Half d;
  std::int8_t q[32];
  void decode(float* out) const {
    const float scale = to_float(d);
    for (int i = 0; i < 32; ++i) {
      out[i] = scale * static_cast<float>(q[i]);
    }
  }
};

/// Eight six-bit (scale, minimum) pairs in 12 bytes, of Q4_K and Q5_K. Pairs 0-3: the low six bits of bytes j and j + 4. Pairs
/// 4-7: low four bits from the nibbles of byte j + 4, high two from the top bits of bytes j - 4 (scale) and j (minimum).
struct PackedScales {
  std::uint8_t packed[12];
  [[nodiscard]] int scale(int j) const {
    return j < 4 ? packed[j] & 63 : (packed[j + 4] & 15) | (packed[j - 4] >> 6 << 4);
  }
  [[nodiscard]] int minimum(int j) const {
    return j < 4 ? packed[j + 4] & 63 : packed[j + 4] >> 4 | (packed[j] >> 6 << 4);
  }
};

/// x = d * scale[s] * q - m * minimum[s], s = the group of 32. Group pairs (0, 1), (2, 3), ... share 32 bytes: low and high nibbles.
struct BlockQ4_K {
  static constexpr int kElements = 256;
  Half d;
  Half m;
  PackedScales scales;
  std::uint8_t q[128];
  void decode(float* out) const {
    for (int group = 0; group < 8; ++group) {
      const float scale = to_float(d) * static_cast<float>(scales.scale(group));
      const float offset = to_float(m) * static_cast<float>(scales.minimum(group));
      const std::uint8_t* bytes = q + group / 2 * 32;
      const int shift = group % 2 * 4;
      for (int i = 0; i < 32; ++i) {
        out[group * 32 + i] = scale * static_cast<float>(bytes[i] >> shift & 15) - offset;
      }
    }
  }
};

/// Q4_K with a fifth bit: of element i of group g it is bit g of high[i].
struct BlockQ5_K {
  static constexpr int kElements = 256;
  Half d;
  Half m;
  PackedScales scales;
  std::uint8_t high[32];
  std::uint8_t q[128];
  void decode(float* out) const {
    for (int group = 0; group < 8; ++group) {
      const float scale = to_float(d) * static_cast<float>(scales.scale(group));
      const float offset = to_float(m) * static_cast<float>(scales.minimum(group));
      const std::uint8_t* bytes = q + group / 2 * 32;
      const int shift = group % 2 * 4;
      for (int i = 0; i < 32; ++i) {
        const int quant = (bytes[i] >> shift & 15) | (high[i] >> group & 1) << 4;
        out[group * 32 + i] = scale * static_cast<float>(quant) - offset;
      }
    }
  }
};

/// x = d * scale[e / 16] * (q - 32), scale a signed byte. Each half of 128 elements has 64 bytes of low nibbles (elements 0-63 in the
/// low ones, 64-127 in the high ones) and 32 bytes of high bit pairs (quarter k of 32 elements: bits 2k and 2k + 1).
struct BlockQ6_K {
  static constexpr int kElements = 256;
  std::uint8_t low[128];
  std::uint8_t high[64];
  std::int8_t scales[16];
  Half d;
  void decode(float* out) const {
    for (int half = 0; half < 2; ++half) {
      for (int quarter = 0; quarter < 4; ++quarter) {
        const std::uint8_t* nibbles = low + half * 64 + quarter % 2 * 32;
        const std::uint8_t* pairs = high + half * 32;
        const int first = half * 128 + quarter * 32;
        for (int i = 0; i < 32; ++i) {
          const int quant = (nibbles[i] >> quarter / 2 * 4 & 15) | (pairs[i] >> quarter * 2 & 3)
                                                                       << 4;
          const float scale = to_float(d) * static_cast<float>(scales[(first + i) / 16]);
          out[first + i] = scale * static_cast<float>(quant - 32);
        }
      }
    }
  }
};

template <class Block>
void decode_blocks(const std::byte* in, std::int64_t num_blocks, float* out) {
  for (std::int64_t i = 0; i < num_blocks; ++i) {
    Block block;
    std::memcpy(&block, in + i * static_cast<std::int64_t>(sizeof(Block)), sizeof(Block));
    block.decode(out + i * Block::kElements);
  }
}

struct TypeFacts {
  SourceType type;
  std::uint32_t ggml_type;
  std::string_view name;
  BlockLayout layout;
  BlockDecoder decoder;
};

template <class Block, int kBytes>
constexpr TypeFacts facts(SourceType type, std::uint32_t ggml_type, std::string_view name) {
  static_assert(sizeof(Block) == kBytes, "a block has no padding");
  return {type, ggml_type, name, {Block::kElements, kBytes}, &decode_blocks<Block>};
}

// By SourceType.
constexpr std::array kTypeFacts = {
    facts<Plain<float>, 4>(SourceType::kF32, 0, "F32"),
    facts<Plain<f16>, 2>(SourceType::kF16, 1, "F16"),
    facts<Plain<bf16>, 2>(SourceType::kBf16, 30, "BF16"),
    facts<BlockQ4_0, 18>(SourceType::kQ4_0, 2, "Q4_0"),
    facts<BlockQ4_1, 20>(SourceType::kQ4_1, 3, "Q4_1"),
    facts<BlockQ5_0, 22>(SourceType::kQ5_0, 6, "Q5_0"),
    facts<BlockQ5_1, 24>(SourceType::kQ5_1, 7, "Q5_1"),
    facts<BlockQ8_0, 34>(SourceType::kQ8_0, 8, "Q8_0"),
    facts<BlockQ4_K, 144>(SourceType::kQ4_K, 12, "Q4_K"),
    facts<BlockQ5_K, 176>(SourceType::kQ5_K, 13, "Q5_K"),
    facts<BlockQ6_K, 210>(SourceType::kQ6_K, 14, "Q6_K"),
};

const TypeFacts& facts_of(SourceType type) {
  return kTypeFacts[static_cast<std::size_t>(type)];
}

/// Checks the range and returns its first byte and the blocks in it.
std::pair<const std::byte*, std::int64_t> blocks_of(const CheckpointTensor& tensor,
                                                    std::int64_t first_row, std::int64_t num_rows,
                                                    std::size_t num_out) {
  RIGEL_CHECK(first_row >= 0 && num_rows >= 0 && num_rows <= tensor.num_rows() - first_row,
              "rows must lie inside the tensor, got [{}, +{}) of {}", first_row, num_rows,
              tensor.num_rows());
  RIGEL_CHECK(num_out == static_cast<std::size_t>(num_rows * tensor.num_columns()),
              "the output must hold the rows, got {} elements for {} x {}", num_out, num_rows,
              tensor.num_columns());
  const BlockLayout layout = block_layout(tensor.type);
  const std::int64_t blocks_per_row = tensor.num_columns() / layout.num_elements;
  return {tensor.bytes.data() + first_row * blocks_per_row * layout.num_bytes,
          num_rows * blocks_per_row};
}

}  // namespace

std::string_view name_of(SourceType type) {
  return facts_of(type).name;
}

BlockLayout block_layout(SourceType type) {
  return facts_of(type).layout;
}

BlockDecoder block_decoder(SourceType type) {
  return facts_of(type).decoder;
}

std::string_view supported_source_types() {
  return "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K";
}

std::optional<SourceType> source_type_of_ggml(std::uint32_t ggml_type) {
  for (const TypeFacts& facts : kTypeFacts) {
    if (facts.ggml_type == ggml_type) {
      return facts.type;
    }
  }
  return std::nullopt;
}

void dequantize_rows(const CheckpointTensor& tensor, std::int64_t first_row, std::int64_t num_rows,
                     std::span<float> out) {
  const auto [in, num_blocks] = blocks_of(tensor, first_row, num_rows, out.size());
  block_decoder(tensor.type)(in, num_blocks, out.data());
}

void dequantize_rows(const CheckpointTensor& tensor, std::int64_t first_row, std::int64_t num_rows,
                     std::span<bf16> out) {
  const auto [in, num_blocks] = blocks_of(tensor, first_row, num_rows, out.size());
  const BlockLayout layout = block_layout(tensor.type);
  if (num_blocks > 0 && tensor.type == SourceType::kBf16) {
    std::memcpy(out.data(), in, out.size_bytes());  // keeps every bit, NaN payloads too
    return;
  }
  // Through a piece of float32 that stays in the first-level cache.
  constexpr int kPieceElements = 8 * kMaxBlockElements;
  std::array<float, kPieceElements> piece;
  const std::int64_t blocks_per_piece = kPieceElements / layout.num_elements;
  for (std::int64_t block = 0; block < num_blocks; block += blocks_per_piece) {
    const std::int64_t count = std::min(blocks_per_piece, num_blocks - block);
    block_decoder(tensor.type)(in + block * layout.num_bytes, count, piece.data());
    bf16* to = out.data() + block * layout.num_elements;
    for (std::int64_t i = 0; i < count * layout.num_elements; ++i) {
      to[i] = bf16(piece[static_cast<std::size_t>(i)]);
    }
  }
}

}  // namespace rigel
