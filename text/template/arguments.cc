#include "text/template/arguments.h"

#include "text/text_error.h"

#include <algorithm>

namespace rigel::text::chat {

Parameters::Parameters(std::string_view function, std::initializer_list<std::string_view> names,
                       const Arguments& arguments)
    : function_(function), names_(names), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names.size()) {
    fail("takes at most " + std::to_string(names.size()) + " arguments, got " +
         std::to_string(arguments.positional.size()));
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    values_[i] = &arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.keywords) {
    const auto place = std::find(names_.begin(), names_.end(), name);
    if (place == names_.end()) {
      fail("got an unexpected argument '" + name + "'");
    }
    const Value*& slot = values_[static_cast<std::size_t>(place - names_.begin())];
    if (slot != nullptr) {
      fail("got two values for '" + name + "'");
    }
    slot = &value;
  }
}

void Parameters::fail(const std::string& message) const {
  throw TextError(std::string(function_) + "() " + message);
}

const Value& Parameters::value(std::size_t i) const {
  if (!has(i)) {
    fail("lacks the argument '" + std::string(names_[i]) + "'");
  }
  return *values_[i];
}

const std::string& Parameters::required_text(std::size_t i) const {
  const Value& given = value(i);
  if (!given.is_string()) {
    fail("takes text as '" + std::string(names_[i]) + "', got " + std::string(type_name(given)));
  }
  return given.as_string();
}

std::string Parameters::text(std::size_t i, std::string_view otherwise) const {
  return has(i) && !values_[i]->is_none() ? required_text(i) : std::string(otherwise);
}

int64_t Parameters::integer(std::size_t i, int64_t otherwise) const {
  if (!has(i) || values_[i]->is_none()) {
    return otherwise;
  }
  if (!values_[i]->is_integral()) {
    fail("takes an integer as '" + std::string(names_[i]) + "', got " +
         std::string(type_name(*values_[i])));
  }
  return values_[i]->as_integer();
}

}  // namespace rigel::text::chat
