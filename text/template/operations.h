#pragma once

#include "text/template/syntax.h"
#include "text/value.h"

#include <string>
#include <string_view>

/// What the template language does with values: Python's operators on its types.
/// All throw TextError, in Python's words, where Python raises. Thread: any.
namespace rigel::text::chat {

Value apply(BinaryOperator op, const Value& left, const Value& right);
Value negate(const Value& operand, bool is_plus);
bool compare(Relation relation, const Value& left, const Value& right);

/// Python's < between numbers, between texts and between lists.
bool is_less(const Value& left, const Value& right);

/// Items of a list, keys of a dictionary, characters of a text, nothing of an undefined value.
ValueList iterate(const Value& value);

/// Items, keys or characters; 0 for an undefined value.
int64_t length_of(const Value& value);

/// The characters of a text, each as a text.
ValueList characters_of(std::string_view text);

/// a.name: a method first, then a key. Missing: undefined. Throws if `object` is undefined itself.
Value get_attribute(const Value& object, std::string_view name);

/// a[key]: an item first, then a method. Missing: undefined. Throws if `object` is undefined itself.
Value get_item(const Value& object, const Value& key);

/// a[begin:end:step]; none stands for a missing part.
Value get_slice(const Value& object, const Value& begin, const Value& end, const Value& step);

}  // namespace rigel::text::chat
