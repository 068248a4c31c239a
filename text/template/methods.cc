#include "text/template/methods.h"

#include "text/template/operations.h"
#include "text/template/text_operations.h"
#include "text/text_error.h"
#include "text/unicode.h"
#include "text/utf8.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>

namespace rigel::text::chat {
namespace {

using Method = Value (*)(const Value& object, const Arguments& arguments);

struct NamedMethod {
  std::string_view name;
  Method call;
};

std::optional<std::string> optional_text(const Parameters& parameters, std::size_t i) {
  if (!parameters.has(i) || parameters.value(i).is_none()) {
    return std::nullopt;
  }
  return parameters.required_text(i);
}

template <Side kSide>
Value strip_method(const Value& object, const Arguments& arguments) {
  const Parameters parameters("strip", {"chars"}, arguments);
  return Value::string(strip(object.as_string(), kSide, optional_text(parameters, 0)));
}

/// str.startswith and str.endswith take a text or a tuple of texts.
template <bool kAtStart>
Value has_affix(const Value& object, const Arguments& arguments) {
  const Parameters parameters(kAtStart ? "startswith" : "endswith", {"affix"}, arguments);
  const std::string_view text = object.as_string();
  const auto matches = [&text](const Value& affix) {
    if (!affix.is_string()) {
      throw TextError(fmt::format("{} first arg must be str or a tuple of str, not {}",
                                  kAtStart ? "startswith" : "endswith", type_name(affix)));
    }
    return kAtStart ? text.starts_with(affix.as_string()) : text.ends_with(affix.as_string());
  };
  const Value& affix = parameters.value(0);
  if (affix.is(Value::Kind::kTuple)) {
    return Value::boolean(std::any_of(affix.items().begin(), affix.items().end(), matches));
  }
  return Value::boolean(matches(affix));
}

template <bool kAtStart>
Value remove_affix(const Value& object, const Arguments& arguments) {
  const Parameters parameters(kAtStart ? "removeprefix" : "removesuffix", {"affix"}, arguments);
  std::string_view text = object.as_string();
  const std::string& affix = parameters.required_text(0);
  if (kAtStart && text.starts_with(affix)) {
    text.remove_prefix(affix.size());
  } else if (!kAtStart && text.ends_with(affix)) {
    text.remove_suffix(affix.size());
  }
  return Value::string(std::string(text));
}

template <bool kFromRight>
Value split_method(const Value& object, const Arguments& arguments) {
  const Parameters parameters("split", {"sep", "maxsplit"}, arguments);
  const auto separator = optional_text(parameters, 0);
  const int64_t max_splits = parameters.integer(1, -1);
  return Value::list(kFromRight ? split_from_right(object.as_string(), separator, max_splits)
                                : split(object.as_string(), separator, max_splits));
}

Value replace_method(const Value& object, const Arguments& arguments) {
  const Parameters parameters("replace", {"old", "new", "count"}, arguments);
  return Value::string(replace(object.as_string(), parameters.required_text(0),
                               parameters.required_text(1), parameters.integer(2, -1)));
}

template <std::string (*kChange)(std::string_view)>
Value changed_object(const Value& object, const Arguments& arguments) {
  const Parameters parameters("this method", {}, arguments);
  return Value::string(kChange(object.as_string()));
}

Value split_lines_method(const Value& object, const Arguments& arguments) {
  const Parameters parameters("splitlines", {}, arguments);
  return Value::list(split_lines(object.as_string()));
}

template <bool kFromRight>
Value find_method(const Value& object, const Arguments& arguments) {
  const Parameters parameters("find", {"sub"}, arguments);
  const std::string& text = object.as_string();
  const std::size_t at =
      kFromRight ? text.rfind(parameters.required_text(0)) : text.find(parameters.required_text(0));
  return Value::integer(at == std::string::npos ? -1
                                                : length_of(Value::string(text.substr(0, at))));
}

Value count_in_text(const Value& object, const Arguments& arguments) {
  const Parameters parameters("count", {"sub"}, arguments);
  const std::string& sub = parameters.required_text(0);
  if (sub.empty()) {
    return Value::integer(length_of(object) + 1);
  }
  return Value::integer(static_cast<int64_t>(split(object.as_string(), sub, -1).size()) - 1);
}

Value join_method(const Value& object, const Arguments& arguments) {
  const Parameters parameters("join", {"iterable"}, arguments);
  std::string text;
  std::string_view separator;
  for (const Value& item : iterate(parameters.value(0))) {
    if (!item.is_string()) {
      throw TextError(
          fmt::format("sequence item: expected str instance, {} found", type_name(item)));
    }
    text += separator;
    text += item.as_string();
    separator = object.as_string();
  }
  return Value::string(std::move(text));
}

/// Whether the text is not empty and `kHas` holds for every character.
template <bool (*kHas)(char32_t)>
Value all_characters(const Value& object, const Arguments& arguments) {
  const Parameters parameters("this method", {}, arguments);
  const std::string& text = object.as_string();
  bool holds = !text.empty();
  for (std::size_t i = 0; holds && i < text.size();) {
    const DecodedCharacter character = decode_character(text, i);
    holds = kHas(character.code_point);
    i += character.num_bytes;
  }
  return Value::boolean(holds);
}

bool is_alphanumeric(char32_t c) {
  return is_letter(c) || is_number(c);
}

template <std::string (*kChange)(std::string_view)>
Value is_object_in_case(const Value& object, const Arguments& arguments) {
  const Parameters parameters("this method", {}, arguments);
  const std::string& text = object.as_string();
  return Value::boolean(kChange(text) == text && to_lower(text) != to_upper(text));
}

/// str.format with plain fields: {}, {0} and {name}.
Value format_method(const Value& object, const Arguments& arguments) {
  std::string out;
  std::size_t next = 0;
  const std::string& text = object.as_string();
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_doubled = i + 1 < text.size() && text[i + 1] == text[i];
    if ((text[i] != '{' && text[i] != '}') || is_doubled) {
      i += (text[i] == '{' || text[i] == '}') ? 1 : 0;
      out.push_back(text[i]);
      continue;
    }
    const std::size_t end = text.find('}', i);
    if (text[i] == '}' || end == std::string::npos) {
      throw TextError("format() found a single brace");
    }
    const std::string field = text.substr(i + 1, end - i - 1);
    const bool is_number =
        field.find_first_not_of("0123456789") == std::string::npos && field.size() < 9;
    const auto keyword = std::find_if(arguments.keywords.begin(), arguments.keywords.end(),
                                      [&field](const auto& k) { return k.first == field; });
    if (is_number) {
      const std::size_t place =
          field.empty() ? next++ : static_cast<std::size_t>(std::stoul(field));
      if (place >= arguments.positional.size()) {
        throw TextError("format() has a field without an argument");
      }
      out += to_text(arguments.positional[place]);
    } else if (keyword != arguments.keywords.end()) {
      out += to_text(keyword->second);
    } else {
      throw TextError(fmt::format("format() does not support the field '{}'", field));
    }
    i = end;
  }
  return Value::string(std::move(out));
}

Value get_method(const Value& object, const Arguments& arguments) {
  const Parameters parameters("get", {"key", "default"}, arguments);
  if (const Value* value = object.as_dictionary().find(parameters.value(0))) {
    return *value;
  }
  return parameters.has(1) ? parameters.value(1) : Value::none();
}

enum class View { kKeys, kValues, kItems };

template <View kView>
Value view_method(const Value& object, const Arguments& arguments) {
  const Parameters parameters("this method", {}, arguments);
  ValueList items;
  for (const auto& [key, value] : object.as_dictionary().entries()) {
    items.push_back(kView == View::kKeys     ? key
                    : kView == View::kValues ? value
                                             : Value::list({key, value}, Value::Kind::kTuple));
  }
  return Value::list(std::move(items), Value::Kind::kView);
}

Value copy_method(const Value& object, const Arguments& arguments) {
  const Parameters parameters("copy", {}, arguments);
  return object;
}

Value index_in_list(const Value& object, const Arguments& arguments) {
  const Parameters parameters("index", {"value"}, arguments);
  const ValueList& items = object.items();
  const auto found = std::find(items.begin(), items.end(), parameters.value(0));
  if (found == items.end()) {
    throw TextError("the item is not in the list");
  }
  return Value::integer(found - items.begin());
}

Value count_in_list(const Value& object, const Arguments& arguments) {
  const Parameters parameters("count", {"value"}, arguments);
  const ValueList& items = object.items();
  return Value::integer(std::count(items.begin(), items.end(), parameters.value(0)));
}

constexpr NamedMethod kTextMethods[] = {
    {"capitalize", changed_object<capitalize>},
    {"count", count_in_text},
    {"endswith", has_affix<false>},
    {"find", find_method<false>},
    {"format", format_method},
    {"isalnum", all_characters<is_alphanumeric>},
    {"isalpha", all_characters<is_letter>},
    {"isdigit", all_characters<is_number>},
    {"islower", is_object_in_case<to_lower>},
    {"isspace", all_characters<is_python_space>},
    {"isupper", is_object_in_case<to_upper>},
    {"join", join_method},
    {"lower", changed_object<to_lower>},
    {"lstrip", strip_method<Side::kLeft>},
    {"removeprefix", remove_affix<true>},
    {"removesuffix", remove_affix<false>},
    {"replace", replace_method},
    {"rfind", find_method<true>},
    {"rsplit", split_method<true>},
    {"rstrip", strip_method<Side::kRight>},
    {"split", split_method<false>},
    {"splitlines", split_lines_method},
    {"startswith", has_affix<true>},
    {"strip", strip_method<Side::kBoth>},
    {"title", changed_object<title_case>},
    {"upper", changed_object<to_upper>},
};

constexpr NamedMethod kDictionaryMethods[] = {
    {"copy", copy_method},
    {"get", get_method},
    {"items", view_method<View::kItems>},
    {"keys", view_method<View::kKeys>},
    {"values", view_method<View::kValues>},
};

constexpr NamedMethod kListMethods[] = {
    {"copy", copy_method},
    {"count", count_in_list},
    {"index", index_in_list},
};

constexpr std::string_view kChangingListMethods[] = {"append", "clear",  "extend",  "insert",
                                                     "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kChangingDictionaryMethods[] = {"clear", "pop", "popitem", "setdefault",
                                                           "update"};

std::span<const NamedMethod> methods_of(const Value& object) {
  switch (object.kind()) {
    case Value::Kind::kString:
      return kTextMethods;
    case Value::Kind::kDictionary:
      return kDictionaryMethods;
    case Value::Kind::kList:
    case Value::Kind::kTuple:
      return kListMethods;
    default:
      return {};
  }
}

std::span<const std::string_view> changing_methods_of(const Value& object) {
  switch (object.kind()) {
    case Value::Kind::kDictionary:
      return kChangingDictionaryMethods;
    case Value::Kind::kList:
      return kChangingListMethods;
    default:
      return {};
  }
}

const NamedMethod* find_method_of(std::span<const NamedMethod> methods, std::string_view name) {
  const auto found =
      std::find_if(methods.begin(), methods.end(),
                   [name](const NamedMethod& method) { return method.name == name; });
  return found != methods.end() ? &*found : nullptr;
}

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

bool is_method_name(std::string_view name) {
  return find_method_of(kTextMethods, name) != nullptr ||
         find_method_of(kDictionaryMethods, name) != nullptr ||
         find_method_of(kListMethods, name) != nullptr || contains(kChangingListMethods, name) ||
         contains(kChangingDictionaryMethods, name) || name == "cycle";
}

bool has_method(const Value& object, std::string_view name) {
  return find_method_of(methods_of(object), name) != nullptr;
}

bool is_changing_method(const Value& object, std::string_view name) {
  return contains(changing_methods_of(object), name);
}

Value call_method(const Value& object, std::string_view name, const Arguments& arguments) {
  return find_method_of(methods_of(object), name)->call(object, arguments);
}

}  // namespace rigel::text::chat
