#pragma once

#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/mapped_file.h"

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace rigel {

/// Parses a whole safetensors file (8-byte little-endian header length, JSON header, data). The tensors must tile the data
/// without holes or overlap, as the format demands. Throws ModelFileError with `source`, tensor and what was found.
[[nodiscard]] std::vector<CheckpointTensor> parse_safetensors(std::span<const std::byte> file,
                                                              std::string_view source);

/// The weights of a Hugging Face directory: model.safetensors, or the shards that model.safetensors.index.json lists.
class SafetensorsCheckpoint final : public Checkpoint {
 public:
  /// Throws ModelFileError too if a tensor is not in the shard the index names, or a shard is missing.
  explicit SafetensorsCheckpoint(const std::filesystem::path& directory);

 private:
  std::vector<MappedFile> shards_;
};

}  // namespace rigel
