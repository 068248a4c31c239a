#pragma once

// Included by few .cc files only: simdjson is a heavy header.

#include "model/model_file_error.h"

#include <fmt/core.h>
#include <simdjson.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rigel {

/// The fields of a JSON object with typed access. A missing field and null are the same: nothing. A field of another type throws
/// ModelFileError with file, path of the field, the value, and what it must be. Valid as long as its JsonDocument.
class JsonFields {
 public:
  JsonFields(simdjson::dom::object object, std::string source, std::string prefix)
      : object_(object), source_(std::move(source)), prefix_(std::move(prefix)) {}

  [[nodiscard]] std::optional<simdjson::dom::element> find(std::string_view name) const {
    simdjson::dom::element element;
    if (object_.at_key(name).get(element) != simdjson::SUCCESS || element.is_null()) {
      return std::nullopt;
    }
    return element;
  }
  [[nodiscard]] std::optional<double> number(std::string_view name) const {
    return typed<double>(name, "a number");
  }
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view name) const {
    return typed<std::int64_t>(name, "an integer");
  }
  /// An integer of at most 32 bits.
  [[nodiscard]] std::optional<int> small_integer(std::string_view name) const {
    const auto value = integer(name);
    if (value &&
        (*value < std::numeric_limits<int>::min() || *value > std::numeric_limits<int>::max())) {
      fail(name, "an integer of 32 bits");
    }
    return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
  }
  [[nodiscard]] std::optional<bool> boolean(std::string_view name) const {
    return typed<bool>(name, "true or false");
  }
  [[nodiscard]] std::optional<std::string> string(std::string_view name) const {
    const auto text = typed<std::string_view>(name, "a string");
    return text ? std::optional(std::string(*text)) : std::nullopt;
  }
  [[nodiscard]] std::optional<simdjson::dom::array> array(std::string_view name) const {
    return typed<simdjson::dom::array>(name, "an array");
  }
  [[nodiscard]] std::optional<JsonFields> object(std::string_view name) const {
    const auto found = typed<simdjson::dom::object>(name, "an object");
    return found ? std::optional(JsonFields(*found, source_, path_of(name) + ".")) : std::nullopt;
  }
  [[nodiscard]] simdjson::dom::object raw() const { return object_; }
  [[nodiscard]] const std::string& source() const { return source_; }
  [[nodiscard]] std::string path_of(std::string_view name) const {
    return fmt::format("{}{}", prefix_, name);
  }

  /// Throws: "FILE: FIELD must be EXPECTED, got VALUE".
  [[noreturn]] void fail(std::string_view name, std::string_view expected) const {
    simdjson::dom::element element;
    std::string value = "nothing";
    if (object_.at_key(name).get(element) == simdjson::SUCCESS) {
      value = simdjson::minify(element);
      constexpr std::size_t kMaxShown = 400;
      if (value.size() > kMaxShown) {
        value = value.substr(0, kMaxShown) + "...";
      }
    }
    throw ModelFileError(
        fmt::format("{}: {} must be {}, got {}", source_, path_of(name), expected, value));
  }

 private:
  template <class T>
  [[nodiscard]] std::optional<T> typed(std::string_view name, std::string_view expected) const {
    const auto element = find(name);
    if (!element) {
      return std::nullopt;
    }
    T value;
    if (element->get(value) != simdjson::SUCCESS) {
      fail(name, expected);
    }
    return value;
  }

  simdjson::dom::object object_;
  std::string source_;
  std::string prefix_;
};

/// A parsed JSON text whose root is an object. Throws ModelFileError, naming `source`, if it is not.
class JsonDocument {
 public:
  JsonDocument(std::string_view text, std::string source) : source_(std::move(source)) {
    simdjson::dom::element root;
    const simdjson::error_code error =
        parser_.parse(text.data(), text.size(), /*realloc_if_needed=*/true).get(root);
    if (error != simdjson::SUCCESS) {
      throw ModelFileError(
          fmt::format("{}: not valid JSON: {}", source_, simdjson::error_message(error)));
    }
    if (root.get(root_) != simdjson::SUCCESS) {
      throw ModelFileError(fmt::format("{}: must hold a JSON object", source_));
    }
  }
  [[nodiscard]] JsonFields fields() const { return {root_, source_, ""}; }

 private:
  std::string source_;
  simdjson::dom::parser parser_;
  simdjson::dom::object root_;
};

}  // namespace rigel
