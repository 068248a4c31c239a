#include "text/template/sequence_filters.h"

#include "text/template/filters.h"
#include "text/template/operations.h"
#include "text/template/text_operations.h"
#include "text/template/value_tests.h"
#include "text/text_error.h"
#include "text/unicode.h"

#include <fmt/core.h>

#include <algorithm>

namespace rigel::text::chat::filters {
namespace {

/// a.b.0 of an item, or the item itself without a path.
Value follow(const Value& item, const std::optional<Value>& path) {
  if (!path) {
    return item;
  }
  if (!path->is_string()) {
    return get_item(item, *path);
  }
  Value value = item;
  for (const Value& step : split(path->as_string(), ".", -1)) {
    const std::string& name = step.as_string();
    const bool is_index = !name.empty() && name.size() < 9 &&
                          name.find_first_not_of("0123456789") == std::string::npos;
    value = get_item(value, is_index ? Value::integer(std::stol(name)) : step);
  }
  return value;
}

std::optional<Value> path_of(const Parameters& parameters, std::size_t i) {
  const bool is_given = parameters.has(i) && !parameters.value(i).is_none();
  return is_given ? std::optional(parameters.value(i)) : std::nullopt;
}

/// What a value sorts by: case does not count unless asked for.
Value sort_key(const Value& value, bool case_sensitive) {
  return value.is_string() && !case_sensitive ? Value::string(to_lower(value.as_string())) : value;
}

/// Sorts by keys worked out once; equal keys keep their order.
ValueList sort_by_keys(const ValueList& values, const ValueList& keys, bool reverse) {
  std::vector<std::size_t> order(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return reverse ? is_less(keys[b], keys[a]) : is_less(keys[a], keys[b]);
  });
  ValueList sorted;
  sorted.reserve(values.size());
  for (const std::size_t i : order) {
    sorted.push_back(values[i]);
  }
  return sorted;
}

template <bool kMax>
Value extreme(const Value& input, const Arguments& arguments) {
  const Parameters parameters(kMax ? "max" : "min", {"case_sensitive", "attribute"}, arguments);
  const auto path = path_of(parameters, 1);
  const ValueList values = iterate(input);
  if (values.empty()) {
    return Value::undefined("No aggregated item, sequence was empty.");
  }
  const auto key = [&](const Value& value) {
    return sort_key(follow(value, path), parameters.flag(0, false));
  };
  std::size_t best = 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    const bool is_better = kMax ? is_less(key(values[best]), key(values[i]))
                                : is_less(key(values[i]), key(values[best]));
    best = is_better ? i : best;
  }
  return values[best];
}

/// The arguments from place `first` on, for the filter or test that a filter names.
Arguments rest_of(const Arguments& arguments, std::size_t first) {
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(first),
                         arguments.positional.end());
  rest.keywords = arguments.keywords;
  return rest;
}

/// The lazy filters take anything false, none included, for an empty list.
ValueList items_if_any(const Value& input) {
  return input.is_true() ? iterate(input) : ValueList{};
}

/// Items for which the test named by argument `test_place` gives `wanted`; truth itself without a test.
Value choose(const Value& input, const Arguments& arguments, bool by_attribute, bool wanted) {
  const std::size_t test_place = by_attribute ? 1 : 0;
  if (arguments.positional.size() < test_place) {
    throw TextError("selectattr() lacks the attribute's name");
  }
  const auto path = by_attribute ? std::optional(arguments.positional[0]) : std::nullopt;
  TestFunction test = nullptr;
  Arguments test_arguments;
  if (arguments.positional.size() > test_place) {
    const std::string name = to_text(arguments.positional[test_place]);
    test = find_test(name);
    if (test == nullptr) {
      throw TextError(fmt::format("unknown test '{}'", name));
    }
    test_arguments = rest_of(arguments, test_place + 1);
  }
  ValueList chosen;
  for (const Value& item : items_if_any(input)) {
    const Value value = follow(item, path);
    if ((test != nullptr ? test(value, test_arguments) : value.is_true()) == wanted) {
      chosen.push_back(item);
    }
  }
  return Value::list(std::move(chosen), Value::Kind::kGenerator);
}

}  // namespace

Value first(const Value& input, const Arguments& arguments) {
  const Parameters parameters("first", {}, arguments);
  const ValueList values = iterate(input);
  return values.empty() ? Value::undefined("No first item, sequence was empty.") : values.front();
}

Value last(const Value& input, const Arguments& arguments) {
  const Parameters parameters("last", {}, arguments);
  const ValueList values = iterate(input);
  return values.empty() ? Value::undefined("No last item, sequence was empty.") : values.back();
}

Value length(const Value& input, const Arguments& arguments) {
  const Parameters parameters("length", {}, arguments);
  return Value::integer(length_of(input));
}

Value list(const Value& input, const Arguments& arguments) {
  const Parameters parameters("list", {}, arguments);
  return Value::list(iterate(input));
}

Value items(const Value& input, const Arguments& arguments) {
  const Parameters parameters("items", {}, arguments);
  ValueList pairs;
  if (!input.is_undefined()) {
    if (!input.is(Value::Kind::kDictionary)) {
      throw TextError("Can only get item pairs from a mapping.");
    }
    for (const auto& [key, value] : input.as_dictionary().entries()) {
      pairs.push_back(Value::list({key, value}, Value::Kind::kTuple));
    }
  }
  return Value::list(std::move(pairs), Value::Kind::kGenerator);
}

Value join(const Value& input, const Arguments& arguments) {
  const Parameters parameters("join", {"d", "attribute"}, arguments);
  const std::string separator = parameters.has(0) ? to_text(parameters.value(0)) : "";
  const auto path = path_of(parameters, 1);
  std::string text;
  bool is_first = true;
  for (const Value& item : iterate(input)) {
    text += is_first ? "" : separator;
    text += to_text(follow(item, path));
    is_first = false;
  }
  return Value::string(std::move(text));
}

Value reverse(const Value& input, const Arguments& arguments) {
  const Parameters parameters("reverse", {}, arguments);
  if (input.is_string()) {
    return get_slice(input, Value::none(), Value::none(), Value::integer(-1));
  }
  ValueList values = iterate(input);
  std::reverse(values.begin(), values.end());
  return Value::list(std::move(values), Value::Kind::kGenerator);
}

Value sum(const Value& input, const Arguments& arguments) {
  const Parameters parameters("sum", {"attribute", "start"}, arguments);
  const auto path = path_of(parameters, 0);
  Value total = parameters.has(1) ? parameters.value(1) : Value::integer(0);
  for (const Value& item : iterate(input)) {
    total = apply(BinaryOperator::kAdd, total, follow(item, path));
  }
  return total;
}

Value min(const Value& input, const Arguments& arguments) {
  return extreme<false>(input, arguments);
}

Value max(const Value& input, const Arguments& arguments) {
  return extreme<true>(input, arguments);
}

Value sort(const Value& input, const Arguments& arguments) {
  const Parameters parameters("sort", {"reverse", "case_sensitive", "attribute"}, arguments);
  const auto path = path_of(parameters, 2);
  const ValueList values = iterate(input);
  ValueList keys;
  for (const Value& value : values) {
    keys.push_back(sort_key(follow(value, path), parameters.flag(1, false)));
  }
  return Value::list(sort_by_keys(values, keys, parameters.flag(0, false)));
}

Value sort_dictionary(const Value& input, const Arguments& arguments) {
  const Parameters parameters("dictsort", {"case_sensitive", "by", "reverse"}, arguments);
  const std::string by = parameters.text(1, "key");
  if (by != "key" && by != "value") {
    throw TextError("You can only sort by either \"key\" or \"value\"");
  }
  if (!input.is(Value::Kind::kDictionary)) {
    throw TextError(fmt::format("dictsort() takes a dictionary, got {}", type_name(input)));
  }
  ValueList pairs;
  ValueList keys;
  for (const auto& [key, value] : input.as_dictionary().entries()) {
    pairs.push_back(Value::list({key, value}, Value::Kind::kTuple));
    keys.push_back(sort_key(by == "key" ? key : value, parameters.flag(0, false)));
  }
  return Value::list(sort_by_keys(pairs, keys, parameters.flag(2, false)));
}

Value unique(const Value& input, const Arguments& arguments) {
  const Parameters parameters("unique", {"case_sensitive", "attribute"}, arguments);
  const auto path = path_of(parameters, 1);
  Dictionary seen;
  ValueList values;
  for (const Value& item : iterate(input)) {
    const Value key = sort_key(follow(item, path), parameters.flag(0, false));
    if (seen.find(key) == nullptr) {
      seen.set(key, Value::none());
      values.push_back(item);
    }
  }
  return Value::list(std::move(values), Value::Kind::kGenerator);
}

Value map(const Value& input, const Arguments& arguments) {
  ValueList mapped;
  if (!arguments.positional.empty()) {
    const std::string name = to_text(arguments.positional[0]);
    const FilterFunction filter = find_filter(name);
    if (filter == nullptr) {
      throw TextError(fmt::format("unknown filter '{}'", name));
    }
    const Arguments rest = rest_of(arguments, 1);
    for (const Value& item : items_if_any(input)) {
      mapped.push_back(filter(item, rest));
    }
  } else {
    const Parameters parameters("map", {"attribute", "default"}, arguments);
    const Value path = parameters.value(0);
    for (const Value& item : items_if_any(input)) {
      const Value value = follow(item, path);
      const bool is_replaced = value.is_undefined() && parameters.has(1);
      mapped.push_back(is_replaced ? parameters.value(1) : value);
    }
  }
  return Value::list(std::move(mapped), Value::Kind::kGenerator);
}

Value select(const Value& input, const Arguments& arguments) {
  return choose(input, arguments, /*by_attribute=*/false, /*wanted=*/true);
}

Value reject(const Value& input, const Arguments& arguments) {
  return choose(input, arguments, /*by_attribute=*/false, /*wanted=*/false);
}

Value select_by_attribute(const Value& input, const Arguments& arguments) {
  return choose(input, arguments, /*by_attribute=*/true, /*wanted=*/true);
}

Value reject_by_attribute(const Value& input, const Arguments& arguments) {
  return choose(input, arguments, /*by_attribute=*/true, /*wanted=*/false);
}

}  // namespace rigel::text::chat::filters
