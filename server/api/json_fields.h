#pragma once

// Includes the JSON library: only for the .cc files that read JSON.

#include "server/api/error.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rigel::server {

using Json = nlohmann::ordered_json;

/// Inclusive bounds of a number; `above` excludes `low` itself.
template <typename T>
struct Range {
  T low = std::numeric_limits<T>::lowest();
  T high = std::numeric_limits<T>::max();
  bool above = false;
};

/// Reads the fields of one JSON object and remembers the first thing that is wrong and which fields nobody asked for.
/// A field that is null counts as absent, as OpenAI's clients expect. Readers leave `out` alone when the field is absent
/// or wrong and return true when they wrote it.
class JsonFields {
 public:
  explicit JsonFields(const Json& object) : object_(object) {}

  /// The field's value, or nothing if it is absent or null. Marks the name as known.
  const Json* find(std::string_view name);

  bool boolean(std::string_view name, bool& out);
  bool string(std::string_view name, std::string& out);
  bool integer(std::string_view name, Range<std::int64_t> range, std::int64_t& out);
  bool integer(std::string_view name, Range<std::int64_t> range, int& out);
  bool real(std::string_view name, Range<double> range, float& out);
  bool strings(std::string_view name, std::size_t max_num_items, std::vector<std::string>& out);
  bool token_ids(std::string_view name, int vocab_size, std::vector<std::int32_t>& out);

  /// Marks names as known without reading them.
  void accept(std::span<const std::string_view> names);

  /// Records what is wrong with a field, unless something was wrong before.
  void fail(std::string_view name, std::string message);
  [[nodiscard]] const std::optional<ApiError>& error() const { return error_; }

  [[nodiscard]] std::vector<std::string> unknown_fields() const;

 private:
  const Json& object_;
  std::vector<std::string_view> known_;
  std::optional<ApiError> error_;
};

/// A value as an error message shows it: JSON text, cut after some 80 bytes.
[[nodiscard]] std::string shown(const Json& value);

/// Reads `value` as token ids in [0, vocab_size). Returns what is wrong, or nothing.
[[nodiscard]] std::optional<std::string> read_token_ids(const Json& value, int vocab_size,
                                                        std::vector<std::int32_t>& out);

/// The JSON object that `text` is, or an error.
[[nodiscard]] Parsed<Json> parse_object(std::string_view text);

}  // namespace rigel::server
