#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace rigel::server {

/// Writes one JSON text front to back, without a tree: an answer's chunks are made on the hot side of the server.
///
/// Strings may hold any bytes; what is not UTF-8 becomes U+FFFD. Numbers that JSON cannot say (NaN, infinities) become
/// null. Commas and colons are the writer's business, the balance of begin and end is the caller's.
class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }

  JsonWriter& key(std::string_view name);

  template <typename T>
  JsonWriter& value(const T& x) {
    if constexpr (std::is_same_v<T, bool>) {
      return raw(x ? "true" : "false");
    } else if constexpr (std::is_same_v<T, std::nullptr_t>) {
      return raw("null");
    } else if constexpr (std::is_same_v<T, std::uint64_t>) {
      return unsigned_integer(x);
    } else if constexpr (std::is_integral_v<T>) {
      return integer(x);
    } else if constexpr (std::is_same_v<T, float>) {
      return real(x);
    } else if constexpr (std::is_same_v<T, double>) {
      return real(x);
    } else {
      return string(x);
    }
  }

  template <typename T>
  JsonWriter& field(std::string_view name, const T& x) {
    return key(name).value(x);
  }

  /// A text that is JSON already.
  JsonWriter& raw(std::string_view json);

  [[nodiscard]] const std::string& text() const { return out_; }
  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  JsonWriter& string(std::string_view text);
  JsonWriter& integer(std::int64_t x);
  JsonWriter& unsigned_integer(std::uint64_t x);
  JsonWriter& real(float x);
  JsonWriter& real(double x);
  void separate();

  std::string out_;
  bool needs_comma_ = false;
};

}  // namespace rigel::server
