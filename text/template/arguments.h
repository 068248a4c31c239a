#pragma once

#include "text/value.h"

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rigel::text::chat {

/// The evaluated arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;
};

/// Arguments matched with the names of a function's parameters.
///
/// The constructor throws TextError, naming the function, on too many arguments and on names it does not know.
class Parameters {
 public:
  Parameters(std::string_view function, std::initializer_list<std::string_view> names,
             const Arguments& arguments);

  /// Whether parameter `i` was given.
  bool has(std::size_t i) const { return values_[i] != nullptr; }

  /// Parameter `i`; throws TextError if it is missing.
  const Value& value(std::size_t i) const;

  // With a default for a missing one. Throw TextError if it is of another type; None counts as missing.
  std::string text(std::size_t i, std::string_view otherwise) const;
  int64_t integer(std::size_t i, int64_t otherwise) const;
  bool flag(std::size_t i, bool otherwise) const {
    return has(i) ? values_[i]->is_true() : otherwise;
  }

  /// Text that must be there.
  const std::string& required_text(std::size_t i) const;

 private:
  [[noreturn]] void fail(const std::string& message) const;

  std::string_view function_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

}  // namespace rigel::text::chat
