// Attributes, items and slices of values.
#include "text/template/methods.h"
#include "text/template/objects.h"
#include "text/template/operations.h"
#include "text/text_error.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

namespace rigel::text::chat {
namespace {

Value no_attribute(const Value& object, std::string_view name) {
  if (object.is_none()) {
    return Value::undefined(fmt::format("'None' has no attribute '{}'", name));
  }
  return Value::undefined(
      fmt::format("'{} object' has no attribute '{}'", type_name(object), name));
}

Value no_element(const Value& object, const Value& key) {
  if (key.is_string()) {
    return no_attribute(object, key.as_string());
  }
  return Value::undefined(
      fmt::format("{} object has no element {}", type_name(object), to_representation(key)));
}

Value bind_method(const Value& object, std::string_view name) {
  return make_callable([object, method = std::string(name)](const Arguments& arguments) {
    return call_method(object, method, arguments);
  });
}

/// Item `index` of a text or list, from the end if negative; nullptr-like undefined outside.
Value item_at(const Value& object, const Value& key) {
  const int64_t length = length_of(object);
  const int64_t index = key.as_integer() < 0 ? key.as_integer() + length : key.as_integer();
  if (index < 0 || index >= length) {
    return no_element(object, key);
  }
  if (object.is_string()) {
    return characters_of(object.as_string())[static_cast<std::size_t>(index)];
  }
  return object.items()[static_cast<std::size_t>(index)];
}

struct SliceRange {
  int64_t begin;
  int64_t end;
  int64_t step;
};

int64_t slice_part(const Value& part, int64_t otherwise) {
  if (part.is_none()) {
    return otherwise;
  }
  if (!part.is_integral()) {
    throw TextError("slice indices must be integers or None");
  }
  return part.as_integer();
}

/// Python's slice.indices(length).
SliceRange slice_range(const Value& begin, const Value& end, const Value& step, int64_t length) {
  const int64_t by = slice_part(step, 1);
  if (by == 0) {
    throw TextError("slice step cannot be zero");
  }
  const int64_t lowest = by > 0 ? 0 : -1;
  const int64_t highest = by > 0 ? length : length - 1;
  const auto clamp = [&](int64_t i) { return std::clamp(i < 0 ? i + length : i, lowest, highest); };
  const bool is_forward = by > 0;
  const int64_t first =
      begin.is_none() ? (is_forward ? lowest : highest) : clamp(slice_part(begin, 0));
  const int64_t last = end.is_none() ? (is_forward ? highest : lowest) : clamp(slice_part(end, 0));
  // A step beyond the length takes one item; a smaller one cannot overflow below.
  return {first, last, std::clamp(by, -length - 1, length + 1)};
}

}  // namespace

Value get_attribute(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Value::Kind::kUndefined:
      throw TextError(object.as_string());
    case Value::Kind::kNamespace: {
      const Value* value = static_cast<Namespace*>(object.as_object())->attributes.find(name);
      return value != nullptr ? *value : no_attribute(object, name);
    }
    case Value::Kind::kLoop:
      return get_loop_member(*static_cast<Loop*>(object.as_object()), name);
    default:
      break;
  }
  if (is_changing_method(object, name)) {
    return Value::undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(object)));
  }
  if (has_method(object, name)) {
    return bind_method(object, name);
  }
  if (object.is(Value::Kind::kDictionary)) {
    if (const Value* value = object.as_dictionary().find(name)) {
      return *value;
    }
  }
  return no_attribute(object, name);
}

Value get_item(const Value& object, const Value& key) {
  if (object.is_undefined()) {
    throw TextError(object.as_string());
  }
  if (object.is(Value::Kind::kDictionary)) {
    if (const Value* value = object.as_dictionary().find(key)) {
      return *value;
    }
  }
  if (key.is_string()) {
    return get_attribute(object, key.as_string());
  }
  const bool is_indexed =
      object.is_string() || object.is(Value::Kind::kList) || object.is(Value::Kind::kTuple);
  return is_indexed && key.is_integral() ? item_at(object, key) : no_element(object, key);
}

Value get_slice(const Value& object, const Value& begin, const Value& end, const Value& step) {
  if (object.is_undefined()) {
    throw TextError(object.as_string());
  }
  const bool is_sliced =
      object.is_string() || object.is(Value::Kind::kList) || object.is(Value::Kind::kTuple);
  if (!is_sliced) {
    throw TextError(fmt::format("'{}' object is not subscriptable", type_name(object)));
  }
  const ValueList items = iterate(object);
  const SliceRange range = slice_range(begin, end, step, static_cast<int64_t>(items.size()));
  ValueList taken;
  for (int64_t i = range.begin; range.step > 0 ? i < range.end : i > range.end; i += range.step) {
    taken.push_back(items[static_cast<std::size_t>(i)]);
  }
  if (!object.is_string()) {
    return Value::list(std::move(taken), object.kind());
  }
  std::string text;
  for (const Value& character : taken) {
    text += character.as_string();
  }
  return Value::string(std::move(text));
}

Value get_loop_member(const Loop& loop, std::string_view name) {
  const auto length = static_cast<int64_t>(loop.items.size());
  const auto index = static_cast<int64_t>(loop.index);
  const std::pair<std::string_view, int64_t> kNumbers[] = {
      {"index", index + 1},         {"index0", index},
      {"revindex", length - index}, {"revindex0", length - index - 1},
      {"length", length},           {"depth", loop.depth},
      {"depth0", loop.depth - 1}};
  for (const auto& [member, value] : kNumbers) {
    if (name == member) {
      return Value::integer(value);
    }
  }
  if (name == "first" || name == "last") {
    return Value::boolean(name == "first" ? index == 0 : index + 1 == length);
  }
  if (name == "previtem") {
    return index > 0 ? loop.items[loop.index - 1] : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < length ? loop.items[loop.index + 1]
                              : Value::undefined("there is no next item");
  }
  if (name == "cycle") {
    return make_callable([i = loop.index](const Arguments& arguments) {
      if (arguments.positional.empty()) {
        throw TextError("no items for cycling given");
      }
      return arguments.positional[i % arguments.positional.size()];
    });
  }
  return Value::undefined(fmt::format("'loop' has no attribute '{}'", name));
}

}  // namespace rigel::text::chat
