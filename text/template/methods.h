#pragma once

#include "text/template/arguments.h"
#include "text/value.h"

#include <optional>
#include <string>
#include <string_view>

namespace rigel::text::chat {

/// Whether any type of value has a method of this name.
bool is_method_name(std::string_view name);

/// Whether `object` has the method and it changes nothing.
bool has_method(const Value& object, std::string_view name);

/// Whether the method would change `object`. Values never change: a template gets an undefined value instead.
bool is_changing_method(const Value& object, std::string_view name);

/// Calls a method of a string, list or dictionary. Throws TextError on wrong arguments.
/// Preconditions: has_method(object, name).
Value call_method(const Value& object, std::string_view name, const Arguments& arguments);

}  // namespace rigel::text::chat
