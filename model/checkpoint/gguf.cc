#include "model/checkpoint/gguf.h"

#include "model/checkpoint/byte_cursor.h"
#include "model/checkpoint/quantization.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

namespace rigel {
namespace {

constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kMaxAlignment = 1U << 20;
constexpr std::uint32_t kMaxDimensions = 4;     // GGML_MAX_DIMS
constexpr std::uint64_t kMaxNameBytes = 65535;  // the specification's limit for keys

// The least bytes that an entry of each table can take: a count that promises more than the file can hold is damage, and is
// refused before anything is reserved for it.
constexpr std::uint64_t kMinEntryBytes = 8 + 4 + 1;
constexpr std::uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;

std::string read_name(ByteCursor& cursor, std::string_view what) {
  const auto num_bytes = cursor.read<std::uint64_t>(what);
  if (num_bytes > kMaxNameBytes) {
    cursor.fail(fmt::format("{} is longer than {} bytes: {}", what, kMaxNameBytes, num_bytes));
  }
  const auto bytes = cursor.take(num_bytes, what);
  std::string name(bytes.size(), '\0');
  if (!bytes.empty()) {
    std::memcpy(name.data(), bytes.data(), bytes.size());
  }
  return name;
}

GgufType read_type(ByteCursor& cursor, std::string_view key) {
  const auto type = cursor.read<std::uint32_t>(key);
  if (type > static_cast<std::uint32_t>(GgufType::kF64)) {
    cursor.fail(fmt::format("metadata key '{}' has the unknown type {}", key, type));
  }
  return static_cast<GgufType>(type);
}

std::uint64_t scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;  // variable
  }
  return 0;
}

/// Walks over the elements of a value and returns their bytes.
std::span<const std::byte> take_elements(ByteCursor& cursor, std::span<const std::byte> file,
                                         const GgufEntry& entry) {
  if (entry.type != GgufType::kString) {
    const std::uint64_t each = scalar_bytes(entry.type);
    if (entry.num_elements > cursor.num_remaining() / each) {
      cursor.fail(fmt::format("the file ends inside metadata key '{}': {} elements of {} bytes",
                              entry.key, entry.num_elements, each));
    }
    return cursor.take(entry.num_elements * each, entry.key);
  }
  if (entry.num_elements > cursor.num_remaining() / sizeof(std::uint64_t)) {
    cursor.fail(fmt::format("the file ends inside metadata key '{}': {} strings", entry.key,
                            entry.num_elements));
  }
  const std::size_t begin = cursor.offset();
  for (std::uint64_t i = 0; i < entry.num_elements; ++i) {
    cursor.take(cursor.read<std::uint64_t>(entry.key), entry.key);
  }
  return file.subspan(begin, cursor.offset() - begin);
}

GgufEntry read_entry(ByteCursor& cursor, std::span<const std::byte> file) {
  GgufEntry entry;
  entry.key = read_name(cursor, "a metadata key");
  entry.type = read_type(cursor, entry.key);
  if (entry.type == GgufType::kArray) {
    entry.is_array = true;
    entry.type = read_type(cursor, entry.key);
    entry.num_elements = cursor.read<std::uint64_t>(entry.key);
    if (entry.type == GgufType::kArray) {
      cursor.fail(fmt::format("metadata key '{}' is an array of arrays, which is not supported",
                              entry.key));
    }
  }
  entry.bytes = take_elements(cursor, file, entry);
  return entry;
}

/// A tensor's description; its bytes are found once the data section's place is known.
struct TensorRecord {
  CheckpointTensor tensor;
  std::uint64_t offset = 0;  // from the data section's begin
  std::uint64_t num_bytes = 0;
};

/// Bytes of a tensor of `dims`, innermost first. The limit is beyond any file and keeps the products from overflowing.
std::uint64_t tensor_bytes(const ByteCursor& cursor, const CheckpointTensor& tensor,
                           std::span<const std::uint64_t> dims) {
  constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 48;
  const BlockLayout layout = block_layout(tensor.type);
  std::uint64_t num_elements = 1;
  for (const std::uint64_t dim : dims) {
    if (dim == 0 || dim > kMaxElements / num_elements) {
      cursor.fail(fmt::format("tensor '{}' has an impossible extent: {}", tensor.name, dim));
    }
    num_elements *= dim;
  }
  const auto block_elements = static_cast<std::uint64_t>(layout.num_elements);
  const std::uint64_t num_columns = dims.empty() ? 1 : dims.front();
  if (num_columns % block_elements != 0) {
    cursor.fail(fmt::format("tensor '{}' has rows of {} elements, no whole blocks of {} ({})",
                            tensor.name, num_columns, block_elements, name_of(tensor.type)));
  }
  return num_elements / block_elements * static_cast<std::uint64_t>(layout.num_bytes);
}

TensorRecord read_tensor(ByteCursor& cursor) {
  TensorRecord record;
  CheckpointTensor& tensor = record.tensor;
  tensor.name = read_name(cursor, "a tensor's name");
  const auto num_dims = cursor.read<std::uint32_t>(tensor.name);
  if (num_dims > kMaxDimensions) {
    cursor.fail(fmt::format("tensor '{}' has {} dimensions, at most {} are allowed", tensor.name,
                            num_dims, kMaxDimensions));
  }
  std::array<std::uint64_t, kMaxDimensions> all_dims{};
  for (std::uint32_t i = 0; i < num_dims; ++i) {
    all_dims[i] = cursor.read<std::uint64_t>(tensor.name);
  }
  const std::span<const std::uint64_t> dims(all_dims.data(), num_dims);
  const auto ggml_type = cursor.read<std::uint32_t>(tensor.name);
  const auto type = source_type_of_ggml(ggml_type);
  if (!type) {
    cursor.fail(fmt::format("tensor '{}' has the unsupported GGML type {}; supported are {}",
                            tensor.name, ggml_type, supported_source_types()));
  }
  tensor.type = *type;
  record.num_bytes = tensor_bytes(cursor, tensor, dims);
  for (const std::uint64_t dim : dims) {  // the file's order is innermost first
    tensor.shape.insert(0, static_cast<std::int64_t>(dim));
  }
  record.offset = cursor.read<std::uint64_t>(tensor.name);
  return record;
}

void check_header(ByteCursor& cursor) {
  if (cursor.num_remaining() < sizeof(kMagic) ||
      cursor.read<std::uint32_t>("the magic") != kMagic) {
    cursor.fail("not a GGUF file: it does not begin with \"GGUF\"");
  }
  const auto version = cursor.read<std::uint32_t>("the version");
  if (version != 2 && version != 3) {
    constexpr std::uint32_t kBigEndian3 = 0x03000000;
    const bool is_swapped = version == kBigEndian3 || version == kBigEndian3 - 0x01000000;
    cursor.fail(fmt::format("GGUF version {} is not supported{}; supported are 2 and 3", version,
                            is_swapped ? " (a big-endian file)" : ""));
  }
}

std::uint64_t alignment_of(const GgufMetadata& metadata) {
  const auto alignment = static_cast<std::uint64_t>(
      metadata.integer("general.alignment").value_or(static_cast<std::int64_t>(kDefaultAlignment)));
  if (!std::has_single_bit(alignment) || alignment > kMaxAlignment) {
    throw ModelFileError(
        fmt::format("{}: general.alignment must be a power of two up to {}, got {}",
                    metadata.source(), kMaxAlignment, alignment));
  }
  return alignment;
}

/// Gives each tensor its bytes of `data`; they must be aligned, inside, and apart from each other.
std::vector<CheckpointTensor> place_tensors(std::vector<TensorRecord> records,
                                            std::span<const std::byte> data,
                                            std::uint64_t alignment, std::string_view source) {
  std::sort(records.begin(), records.end(),
            [](const TensorRecord& a, const TensorRecord& b) { return a.offset < b.offset; });
  std::uint64_t end_of_previous = 0;
  std::vector<CheckpointTensor> tensors;
  tensors.reserve(records.size());
  for (TensorRecord& record : records) {
    const std::string& name = record.tensor.name;
    if (record.offset % alignment != 0) {
      throw ModelFileError(
          fmt::format("{}: tensor '{}' begins at byte {} of the data, no multiple "
                      "of the alignment {}",
                      source, name, record.offset, alignment));
    }
    if (record.offset > data.size() || record.num_bytes > data.size() - record.offset) {
      throw ModelFileError(
          fmt::format("{}: tensor '{}' lies outside the file: bytes [{}, +{}) of "
                      "{} bytes of data; the file is cut short or damaged",
                      source, name, record.offset, record.num_bytes, data.size()));
    }
    if (record.offset < end_of_previous) {
      throw ModelFileError(fmt::format("{}: tensor '{}' overlaps the one before it", source, name));
    }
    end_of_previous = record.offset + record.num_bytes;
    record.tensor.bytes = data.subspan(static_cast<std::size_t>(record.offset),
                                       static_cast<std::size_t>(record.num_bytes));
    tensors.push_back(std::move(record.tensor));
  }
  return tensors;
}

}  // namespace

GgufContents parse_gguf(std::span<const std::byte> file, std::string_view source) {
  ByteCursor cursor(file, source);
  check_header(cursor);
  const auto num_tensors = cursor.read<std::uint64_t>("the number of tensors");
  const auto num_entries = cursor.read<std::uint64_t>("the number of metadata entries");
  if (num_entries > cursor.num_remaining() / kMinEntryBytes ||
      num_tensors > cursor.num_remaining() / kMinTensorBytes) {
    cursor.fail(fmt::format("{} tensors and {} metadata entries do not fit the {} bytes left",
                            num_tensors, num_entries, cursor.num_remaining()));
  }
  std::vector<GgufEntry> entries;
  for (std::uint64_t i = 0; i < num_entries; ++i) {
    entries.push_back(read_entry(cursor, file));
  }
  GgufContents contents;
  contents.metadata = GgufMetadata(std::move(entries), source);
  std::vector<TensorRecord> records;
  for (std::uint64_t i = 0; i < num_tensors; ++i) {
    records.push_back(read_tensor(cursor));
  }
  const std::uint64_t alignment = alignment_of(contents.metadata);
  const std::uint64_t data_begin = (cursor.offset() + alignment - 1) / alignment * alignment;
  const auto data = file.subspan(std::min(static_cast<std::size_t>(data_begin), file.size()));
  contents.tensors = place_tensors(std::move(records), data, alignment, source);
  return contents;
}

GgufCheckpoint::GgufCheckpoint(const std::filesystem::path& path)
    : Checkpoint(CheckpointFormat::kGguf), file_(path) {
  GgufContents contents = parse_gguf(file_.bytes(), path.string());
  metadata_ = std::move(contents.metadata);
  if (metadata_.integer("split.count").value_or(1) > 1) {
    throw ModelFileError(fmt::format(
        "{}: split GGUF files are not supported; join the parts with `llama-gguf-split --merge`",
        path.string()));
  }
  adopt(std::move(contents.tensors), path.string());
}

}  // namespace rigel
