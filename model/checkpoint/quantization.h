#pragma once

#include "model/checkpoint/checkpoint.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace rigel {

/// The SourceType with this id in GGUF's `ggml_type`, if it is one that Rigel reads.
[[nodiscard]] std::optional<SourceType> source_type_of_ggml(std::uint32_t ggml_type);

/// The names of all SourceTypes, for messages: "F32, F16, ...".
[[nodiscard]] std::string_view supported_source_types();

/// Elements that one call of a BlockDecoder may produce at most: the largest block.
inline constexpr int kMaxBlockElements = 256;

/// Decodes `num_blocks` consecutive blocks at `in` (no alignment needed) to floats. Every product in the formulas below is exact
/// in float32 (11-bit scale times at most 13 bits), so results do not depend on whether the compiler contracts.
using BlockDecoder = void (*)(const std::byte* in, std::int64_t num_blocks, float* out);

[[nodiscard]] BlockDecoder block_decoder(SourceType type);

}  // namespace rigel
