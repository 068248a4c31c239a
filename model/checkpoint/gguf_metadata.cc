#include "model/checkpoint/byte_cursor.h"
#include "model/checkpoint/gguf.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace rigel {
namespace {

bool is_integer(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kU16:
    case GgufType::kI16:
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kU64:
    case GgufType::kI64:
      return true;
    default:
      return false;
  }
}

bool is_number(GgufType type) {
  return is_integer(type) || type == GgufType::kF32 || type == GgufType::kF64;
}

bool is_boolean(GgufType type) {
  return type == GgufType::kBool;
}
bool is_string(GgufType type) {
  return type == GgufType::kString;
}

std::int64_t read_integer(ByteCursor& cursor, GgufType type, std::string_view key) {
  switch (type) {
    case GgufType::kU8:
      return cursor.read<std::uint8_t>(key);
    case GgufType::kI8:
      return cursor.read<std::int8_t>(key);
    case GgufType::kU16:
      return cursor.read<std::uint16_t>(key);
    case GgufType::kI16:
      return cursor.read<std::int16_t>(key);
    case GgufType::kU32:
      return cursor.read<std::uint32_t>(key);
    case GgufType::kI32:
      return cursor.read<std::int32_t>(key);
    case GgufType::kI64:
      return cursor.read<std::int64_t>(key);
    default: {
      const auto value = cursor.read<std::uint64_t>(key);
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        cursor.fail(fmt::format("the value {} of '{}' is out of range", value, key));
      }
      return static_cast<std::int64_t>(value);
    }
  }
}

double read_number(ByteCursor& cursor, GgufType type, std::string_view key) {
  if (type == GgufType::kF32) {
    return cursor.read<float>(key);
  }
  if (type == GgufType::kF64) {
    return cursor.read<double>(key);
  }
  return static_cast<double>(read_integer(cursor, type, key));
}

std::string read_string(ByteCursor& cursor, GgufType /*type*/, std::string_view key) {
  const auto bytes = cursor.take(cursor.read<std::uint64_t>(key), key);
  std::string text(bytes.size(), '\0');
  if (!bytes.empty()) {
    std::memcpy(text.data(), bytes.data(), bytes.size());
  }
  return text;
}

template <class T>
std::vector<T> read_all(const GgufEntry& entry, const std::string& source,
                        T (*read_one)(ByteCursor&, GgufType, std::string_view)) {
  ByteCursor cursor(entry.bytes, source);
  std::vector<T> values;
  values.reserve(static_cast<std::size_t>(entry.num_elements));
  for (std::uint64_t i = 0; i < entry.num_elements; ++i) {
    values.push_back(read_one(cursor, entry.type, entry.key));
  }
  return values;
}

}  // namespace

std::string_view name_of(GgufType type) {
  switch (type) {
    case GgufType::kU8:
      return "uint8";
    case GgufType::kI8:
      return "int8";
    case GgufType::kU16:
      return "uint16";
    case GgufType::kI16:
      return "int16";
    case GgufType::kU32:
      return "uint32";
    case GgufType::kI32:
      return "int32";
    case GgufType::kF32:
      return "float32";
    case GgufType::kBool:
      return "bool";
    case GgufType::kString:
      return "string";
    case GgufType::kArray:
      return "array";
    case GgufType::kU64:
      return "uint64";
    case GgufType::kI64:
      return "int64";
    case GgufType::kF64:
      return "float64";
  }
  return "?";
}

GgufMetadata::GgufMetadata(std::vector<GgufEntry> entries, std::string_view source)
    : source_(source), entries_(std::move(entries)) {
  std::sort(entries_.begin(), entries_.end(),
            [](const GgufEntry& a, const GgufEntry& b) { return a.key < b.key; });
  const auto twice =
      std::adjacent_find(entries_.begin(), entries_.end(),
                         [](const GgufEntry& a, const GgufEntry& b) { return a.key == b.key; });
  if (twice != entries_.end()) {
    throw ModelFileError(fmt::format("{}: metadata key '{}' occurs twice", source_, twice->key));
  }
}

const GgufEntry* GgufMetadata::find(std::string_view key) const {
  const auto found = std::lower_bound(
      entries_.begin(), entries_.end(), key,
      [](const GgufEntry& entry, std::string_view wanted) { return entry.key < wanted; });
  return found != entries_.end() && found->key == key ? &*found : nullptr;
}

const GgufEntry* GgufMetadata::find_typed(std::string_view key, bool is_array,
                                          std::string_view expected,
                                          bool (*accepts)(GgufType)) const {
  const GgufEntry* entry = find(key);
  if (entry != nullptr && (entry->is_array != is_array || !accepts(entry->type))) {
    throw ModelFileError(fmt::format("{}: metadata key '{}' must be {}, got {}{}", source_, key,
                                     expected, entry->is_array ? "an array of " : "",
                                     name_of(entry->type)));
  }
  return entry;
}

std::optional<std::int64_t> GgufMetadata::integer(std::string_view key) const {
  const GgufEntry* entry = find_typed(key, false, "an integer", is_integer);
  if (entry == nullptr) {
    return std::nullopt;
  }
  ByteCursor cursor(entry->bytes, source_);
  return read_integer(cursor, entry->type, key);
}

std::optional<double> GgufMetadata::number(std::string_view key) const {
  const GgufEntry* entry = find_typed(key, false, "a number", is_number);
  if (entry == nullptr) {
    return std::nullopt;
  }
  ByteCursor cursor(entry->bytes, source_);
  return read_number(cursor, entry->type, key);
}

std::optional<bool> GgufMetadata::boolean(std::string_view key) const {
  const GgufEntry* entry = find_typed(key, false, "a bool", is_boolean);
  if (entry == nullptr) {
    return std::nullopt;
  }
  ByteCursor cursor(entry->bytes, source_);
  return cursor.read<std::uint8_t>(key) != 0;
}

std::optional<std::string> GgufMetadata::string(std::string_view key) const {
  const GgufEntry* entry = find_typed(key, false, "a string", is_string);
  if (entry == nullptr) {
    return std::nullopt;
  }
  ByteCursor cursor(entry->bytes, source_);
  return read_string(cursor, entry->type, key);
}

std::optional<std::vector<std::int64_t>> GgufMetadata::integers(std::string_view key) const {
  const GgufEntry* entry = find_typed(key, true, "an array of integers", is_integer);
  return entry == nullptr ? std::nullopt
                          : std::optional(read_all<std::int64_t>(*entry, source_, read_integer));
}

std::optional<std::vector<double>> GgufMetadata::numbers(std::string_view key) const {
  const GgufEntry* entry = find_typed(key, true, "an array of numbers", is_number);
  return entry == nullptr ? std::nullopt
                          : std::optional(read_all<double>(*entry, source_, read_number));
}

std::optional<std::vector<std::string>> GgufMetadata::strings(std::string_view key) const {
  const GgufEntry* entry = find_typed(key, true, "an array of strings", is_string);
  return entry == nullptr ? std::nullopt
                          : std::optional(read_all<std::string>(*entry, source_, read_string));
}

}  // namespace rigel
