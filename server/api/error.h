#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace rigel::server {

/// Why a call was refused, in the words of the HTTP interface. `status` is also the body's `code`.
struct ApiError {
  int status = 400;
  std::string message = {};  // names the field, its value and the allowed range
  std::string param = {};    // the field; empty: none
};

/// A value or the reason why there is none.
template <typename T>
class Parsed {
 public:
  Parsed(T value) : state_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Parsed(ApiError error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  [[nodiscard]] T& value() { return std::get<0>(state_); }
  [[nodiscard]] const T& value() const { return std::get<0>(state_); }
  [[nodiscard]] ApiError& error() { return std::get<1>(state_); }
  [[nodiscard]] const ApiError& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, ApiError> state_;
};

/// vLLM's name for errors of this HTTP status: "BadRequestError" for 400.
[[nodiscard]] std::string_view error_type(int status);

/// {"error": {"message", "type", "param", "code"}}.
[[nodiscard]] std::string error_body(const ApiError& error);

}  // namespace rigel::server
