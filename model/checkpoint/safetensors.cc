#include "model/checkpoint/safetensors.h"

#include "model/checkpoint/byte_cursor.h"
#include "model/json_fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

namespace rigel {
namespace {

namespace json = simdjson::dom;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 48;

std::optional<SourceType> source_type_of(std::string_view dtype) {
  if (dtype == "F32") {
    return SourceType::kF32;
  }
  if (dtype == "F16") {
    return SourceType::kF16;
  }
  if (dtype == "BF16") {
    return SourceType::kBf16;
  }
  return std::nullopt;
}

Shape read_shape(const JsonFields& fields) {
  const auto extents = fields.array("shape");
  if (!extents || extents->size() > Shape::kMaxRank) {
    fields.fail("shape", "a list of at most 6 extents");
  }
  Shape shape;
  std::uint64_t num_elements = 1;
  for (const json::element element : *extents) {
    std::uint64_t extent = 0;
    if (element.get(extent) != simdjson::SUCCESS || extent == 0 ||
        extent > kMaxElements / num_elements) {
      fields.fail("shape", "a list of positive extents");
    }
    num_elements *= extent;
    shape.insert(shape.rank(), static_cast<std::int64_t>(extent));
  }
  return shape;
}

std::pair<std::uint64_t, std::uint64_t> read_range(const JsonFields& fields) {
  const auto offsets = fields.array("data_offsets");
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  if (!offsets || offsets->size() != 2 || offsets->at(0).get(begin) != simdjson::SUCCESS ||
      offsets->at(1).get(end) != simdjson::SUCCESS || begin > end) {
    fields.fail("data_offsets", "[begin, end]");
  }
  return {begin, end};
}

CheckpointTensor read_tensor(std::string_view name, const JsonFields& fields,
                             std::span<const std::byte> data) {
  CheckpointTensor tensor;
  tensor.name = name;
  tensor.shape = read_shape(fields);
  const auto type = source_type_of(fields.string("dtype").value_or(""));
  if (!type) {
    fields.fail("dtype", "F32, F16 or BF16");
  }
  tensor.type = *type;
  const auto [begin, end] = read_range(fields);
  const auto num_bytes = static_cast<std::uint64_t>(tensor.shape.num_elements()) *
                         static_cast<std::uint64_t>(block_layout(tensor.type).num_bytes);
  if (end - begin != num_bytes) {
    fields.fail("data_offsets",
                fmt::format("{} bytes apart for shape {}", num_bytes, to_string(tensor.shape)));
  }
  if (end > data.size()) {
    fields.fail("data_offsets",
                fmt::format("inside the file's {} bytes of data (the file is cut short or damaged)",
                            data.size()));
  }
  tensor.bytes = data.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(num_bytes));
  return tensor;
}

void require_tiling(const std::vector<CheckpointTensor>& tensors, std::span<const std::byte> data,
                    std::string_view source) {
  std::vector<const CheckpointTensor*> by_place;
  for (const CheckpointTensor& tensor : tensors) {
    by_place.push_back(&tensor);
  }
  std::sort(by_place.begin(), by_place.end(),
            [](const CheckpointTensor* a, const CheckpointTensor* b) {
              return a->bytes.data() < b->bytes.data();
            });
  std::size_t end_of_previous = 0;
  for (const CheckpointTensor* tensor : by_place) {
    const auto begin = static_cast<std::size_t>(tensor->bytes.data() - data.data());
    if (begin != end_of_previous) {
      throw ModelFileError(
          fmt::format("{}: tensor '{}' must begin at byte {} of the data, where "
                      "the one before it ends, got {}",
                      source, tensor->name, end_of_previous, begin));
    }
    end_of_previous = begin + tensor->bytes.size();
  }
  if (end_of_previous != data.size()) {
    throw ModelFileError(fmt::format("{}: the tensors take {} bytes, but the file holds {}", source,
                                     end_of_previous, data.size()));
  }
}

/// File name -> tensors the index promises to be in it; a list, as there are few files.
struct Shard {
  std::string file;
  std::vector<std::string> tensors;
};

std::vector<Shard> read_index(const std::filesystem::path& path) {
  const std::string text = read_text_file(path);
  const JsonDocument document(text, path.string());
  const auto map = document.fields().object("weight_map");
  if (!map) {
    document.fields().fail("weight_map", "an object");
  }
  std::vector<Shard> shards;
  for (const auto& [name, element] : map->raw()) {
    std::string_view file;
    // A file's name only: an index must not reach out of its directory.
    if (element.get(file) != simdjson::SUCCESS || file.empty() ||
        file.find('/') != std::string_view::npos || file.front() == '.') {
      map->fail(name, "the name of a file in the same directory");
    }
    auto shard = std::find_if(shards.begin(), shards.end(),
                              [&](const Shard& other) { return other.file == file; });
    if (shard == shards.end()) {
      shard = shards.insert(shards.end(), Shard{std::string(file), {}});
    }
    shard->tensors.emplace_back(name);
  }
  return shards;
}

std::vector<Shard> find_shards(const std::filesystem::path& directory) {
  const auto index = directory / "model.safetensors.index.json";
  if (std::filesystem::exists(index)) {
    return read_index(index);
  }
  if (!std::filesystem::exists(directory / "model.safetensors")) {
    throw ModelFileError(
        fmt::format("{}: neither model.safetensors nor model.safetensors.index.json is there; "
                    "other weight formats must be converted to safetensors",
                    directory.string()));
  }
  return {Shard{"model.safetensors", {}}};
}

}  // namespace

std::vector<CheckpointTensor> parse_safetensors(std::span<const std::byte> file,
                                                std::string_view source) {
  ByteCursor cursor(file, source);
  const auto header_bytes = cursor.read<std::uint64_t>("the header's length");
  if (header_bytes > kMaxHeaderBytes) {
    cursor.fail(fmt::format("not a safetensors file: a header of {} bytes", header_bytes));
  }
  const auto header = cursor.take(header_bytes, "the header");
  const std::string text = [&] {
    std::string copy(header.size(), '\0');
    std::transform(header.begin(), header.end(), copy.begin(),
                   [](std::byte byte) { return static_cast<char>(byte); });
    return copy;
  }();
  const JsonDocument document(text, fmt::format("{}: header", source));
  const auto data = file.subspan(cursor.offset());
  std::vector<CheckpointTensor> tensors;
  for (const auto& [name, element] : document.fields().raw()) {
    if (name == "__metadata__") {
      continue;
    }
    json::object object;
    if (element.get(object) != simdjson::SUCCESS) {
      document.fields().fail(name, "an object");
    }
    tensors.push_back(read_tensor(
        name, JsonFields(object, std::string(source), fmt::format("'{}' ", name)), data));
  }
  require_tiling(tensors, data, source);
  return tensors;
}

SafetensorsCheckpoint::SafetensorsCheckpoint(const std::filesystem::path& directory)
    : Checkpoint(CheckpointFormat::kHuggingFace) {
  std::vector<CheckpointTensor> all;
  for (const Shard& shard : find_shards(directory)) {
    const auto path = directory / shard.file;
    shards_.emplace_back(path);
    std::vector<CheckpointTensor> tensors =
        parse_safetensors(shards_.back().bytes(), path.string());
    for (const std::string& promised : shard.tensors) {
      if (std::none_of(tensors.begin(), tensors.end(),
                       [&](const CheckpointTensor& tensor) { return tensor.name == promised; })) {
        throw ModelFileError(fmt::format("{}: tensor '{}' is missing, though the index promises it",
                                         path.string(), promised));
      }
    }
    all.insert(all.end(), std::make_move_iterator(tensors.begin()),
               std::make_move_iterator(tensors.end()));
  }
  adopt(std::move(all), directory.string());
}

}  // namespace rigel
