#pragma once

#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/mapped_file.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rigel {

/// Types of metadata values, numbered as in the file.
enum class GgufType : std::uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};
[[nodiscard]] std::string_view name_of(GgufType type);

/// One metadata entry; its bytes stay in the file until asked for (a vocabulary is megabytes).
struct GgufEntry {
  std::string key;
  GgufType type = GgufType::kU8;  ///< of the elements, if `is_array`
  bool is_array = false;
  std::uint64_t num_elements = 1;
  std::span<const std::byte> bytes;  ///< the elements, checked to lie in the file
};

/// Metadata of a GGUF file with typed access. Getters return nothing for a missing key, and throw ModelFileError, naming key and
/// both types, for a value of another type.
///
/// Thread: any (immutable). Lives no longer than the file's bytes.
class GgufMetadata {
 public:
  GgufMetadata() = default;
  /// Sorts by key; throws ModelFileError if one occurs twice.
  GgufMetadata(std::vector<GgufEntry> entries, std::string_view source);

  [[nodiscard]] const std::string& source() const { return source_; }
  [[nodiscard]] std::span<const GgufEntry> entries() const { return entries_; }
  [[nodiscard]] const GgufEntry* find(std::string_view key) const;

  /// Any integer type that fits.
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key) const;
  /// Any float or integer type.
  [[nodiscard]] std::optional<double> number(std::string_view key) const;
  [[nodiscard]] std::optional<bool> boolean(std::string_view key) const;
  [[nodiscard]] std::optional<std::string> string(std::string_view key) const;

  [[nodiscard]] std::optional<std::vector<std::int64_t>> integers(std::string_view key) const;
  [[nodiscard]] std::optional<std::vector<double>> numbers(std::string_view key) const;
  [[nodiscard]] std::optional<std::vector<std::string>> strings(std::string_view key) const;

 private:
  const GgufEntry* find_typed(std::string_view key, bool is_array, std::string_view expected,
                              bool (*accepts)(GgufType)) const;

  std::string source_;
  std::vector<GgufEntry> entries_;  // sorted by key
};

/// What a GGUF file says.
struct GgufContents {
  GgufMetadata metadata;
  std::vector<CheckpointTensor> tensors;  ///< by place in the file
};

/// Parses a whole GGUF file of version 2 or 3 (specification: ggml/docs/gguf.md), little-endian. Every count, offset and size is
/// checked against the bytes that are there; throws ModelFileError with `source`, the byte offset, and what was found.
[[nodiscard]] GgufContents parse_gguf(std::span<const std::byte> file, std::string_view source);

/// A GGUF file as a checkpoint.
class GgufCheckpoint final : public Checkpoint {
 public:
  explicit GgufCheckpoint(const std::filesystem::path& path);
  [[nodiscard]] const GgufMetadata& metadata() const { return metadata_; }

 private:
  MappedFile file_;
  GgufMetadata metadata_;
};

}  // namespace rigel
