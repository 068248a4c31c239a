#include "text/template/filters.h"

#include "text/template/arguments.h"
#include "text/template/operations.h"
#include "text/template/sequence_filters.h"
#include "text/template/text_operations.h"
#include "text/text_error.h"
#include "text/unicode.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace rigel::text::chat {
namespace {

/// What Jinja2's text filters do first: soft_str().
std::string text_of(const Value& input) {
  return to_text(input);
}

Value absolute(const Value& input, const Arguments& arguments) {
  const Parameters parameters("abs", {}, arguments);
  if (!input.is_number()) {
    throw TextError(fmt::format("bad operand type for abs(): '{}'", type_name(input)));
  }
  return is_less(input, Value::integer(0)) ? negate(input, /*is_plus=*/false) : input;
}

template <std::string (*kChange)(std::string_view)>
Value changed_text(const Value& input, const Arguments& arguments) {
  const Parameters parameters("this filter", {}, arguments);
  return Value::string(kChange(text_of(input)));
}

Value default_value(const Value& input, const Arguments& arguments) {
  const Parameters parameters("default", {"default_value", "boolean"}, arguments);
  const bool is_missing = input.is_undefined() || (parameters.flag(1, false) && !input.is_true());
  if (!is_missing) {
    return input;
  }
  return parameters.has(0) ? parameters.value(0) : Value::string("");
}

Value indented(const Value& input, const Arguments& arguments) {
  const Parameters parameters("indent", {"width", "first", "blank"}, arguments);
  constexpr int64_t kMaxWidth = 1000;
  std::string prefix;
  if (parameters.has(0) && parameters.value(0).is_string()) {
    prefix = parameters.value(0).as_string();
  } else {
    prefix.assign(
        static_cast<std::size_t>(std::clamp(parameters.integer(0, 4), int64_t{0}, kMaxWidth)), ' ');
  }
  return Value::string(
      indent(text_of(input), prefix, parameters.flag(1, false), parameters.flag(2, false)));
}

/// The number a text begins and ends with, if Python's int() or float() would take it.
template <typename Number>
std::optional<Number> parse_number(const std::string& text, int base = 10) {
  const std::string stripped = strip(text, Side::kBoth, std::nullopt);
  const char* begin = stripped.data() + (stripped.starts_with('+') ? 1 : 0);
  const char* end = stripped.data() + stripped.size();
  Number number{};
  std::from_chars_result result{};
  if constexpr (std::is_same_v<Number, int64_t>) {
    result = std::from_chars(begin, end, number, base);
  } else {
    result = std::from_chars(begin, end, number);
  }
  const bool is_whole = result.ec == std::errc() && result.ptr == end && begin != end;
  return is_whole ? std::optional<Number>(number) : std::nullopt;
}

Value to_integer(const Value& input, const Arguments& arguments) {
  const Parameters parameters("int", {"default", "base"}, arguments);
  const Value otherwise = parameters.has(0) ? parameters.value(0) : Value::integer(0);
  const int64_t base = parameters.integer(1, 10);
  if (base < 2 || base > 36) {
    throw TextError(fmt::format("int() takes a base from 2 to 36, got {}", base));
  }
  if (input.is_integral()) {
    return Value::integer(input.as_integer());
  }
  std::optional<double> number;
  if (input.is_string()) {
    if (const auto integer = parse_number<int64_t>(input.as_string(), static_cast<int>(base))) {
      return Value::integer(*integer);
    }
    number = parse_number<double>(input.as_string());
  } else if (input.is(Value::Kind::kFloat)) {
    number = input.as_real();
  }
  constexpr double kLimit = 9.2e18;
  const bool fits = number && std::abs(*number) < kLimit;
  return fits ? Value::integer(static_cast<int64_t>(*number)) : otherwise;
}

Value to_real(const Value& input, const Arguments& arguments) {
  const Parameters parameters("float", {"default"}, arguments);
  if (input.is_number()) {
    return Value::real(input.as_real());
  }
  const auto number = input.is_string() ? parse_number<double>(input.as_string()) : std::nullopt;
  if (number) {
    return Value::real(*number);
  }
  return parameters.has(0) ? parameters.value(0) : Value::real(0);
}

Value rounded(const Value& input, const Arguments& arguments) {
  const Parameters parameters("round", {"precision", "method"}, arguments);
  const std::string method = parameters.text(1, "common");
  if (!input.is_number() || (method != "common" && method != "ceil" && method != "floor")) {
    throw TextError("round() takes a number and one of the methods common, ceil and floor");
  }
  const double scale = std::pow(10.0, static_cast<double>(parameters.integer(0, 0)));
  const double scaled = input.as_real() * scale;
  const double whole = method == "ceil"    ? std::ceil(scaled)
                       : method == "floor" ? std::floor(scaled)
                                           : std::nearbyint(scaled);
  return Value::real(whole / scale);
}

Value replaced(const Value& input, const Arguments& arguments) {
  const Parameters parameters("replace", {"old", "new", "count"}, arguments);
  return Value::string(replace(text_of(input), to_text(parameters.value(0)),
                               to_text(parameters.value(1)), parameters.integer(2, -1)));
}

/// `string`: the value's text, which stays marked as safe.
Value as_text(const Value& input, const Arguments& arguments) {
  const Parameters parameters("this filter", {}, arguments);
  return input.is_string() ? input : Value::string(to_text(input));
}

Value trimmed(const Value& input, const Arguments& arguments) {
  const Parameters parameters("trim", {"chars"}, arguments);
  const bool has_set = parameters.has(0) && !parameters.value(0).is_none();
  return Value::string(strip(text_of(input), Side::kBoth,
                             has_set ? std::optional(parameters.required_text(0)) : std::nullopt));
}

Value count_words(const Value& input, const Arguments& arguments) {
  const Parameters parameters("wordcount", {}, arguments);
  return Value::integer(static_cast<int64_t>(split(text_of(input), std::nullopt, -1).size()));
}

Value marked_safe(const Value& input, const Arguments& arguments) {
  const Parameters parameters("safe", {}, arguments);
  return Value::markup(text_of(input));
}

Value escaped(const Value& input, const Arguments& arguments) {
  const Parameters parameters("escape", {}, arguments);
  return input.is_markup() ? input : Value::markup(escape_html(text_of(input)));
}

Value as_json(const Value& input, const Arguments& arguments) {
  const Parameters parameters("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"},
                              arguments);
  JsonFormat format;
  format.ensure_ascii = parameters.flag(0, false);
  format.sort_keys = parameters.flag(3, false);
  constexpr int64_t kMaxIndent = 100;
  format.indent = static_cast<int>(std::clamp(parameters.integer(1, -1), int64_t{-1}, kMaxIndent));
  format.item_separator = format.indent >= 0 ? "," : ", ";
  if (parameters.has(2) && !parameters.value(2).is_none()) {
    const ValueList separators = iterate(parameters.value(2));
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      throw TextError("tojson() takes two texts as separators");
    }
    format.item_separator = separators[0].as_string();
    format.key_separator = separators[1].as_string();
  }
  if (input.is_undefined()) {
    throw TextError("Object of type Undefined is not JSON serializable");
  }
  return Value::string(to_json(input, format));
}

Value from_json(const Value& input, const Arguments& arguments) {
  const Parameters parameters("from_json", {}, arguments);
  return parse_json(text_of(input));
}

constexpr std::pair<std::string_view, FilterFunction> kFilters[] = {
    {"abs", absolute},
    {"capitalize", changed_text<capitalize>},
    {"count", filters::length},
    {"d", default_value},
    {"default", default_value},
    {"dictsort", filters::sort_dictionary},
    {"e", escaped},
    {"escape", escaped},
    {"first", filters::first},
    {"float", to_real},
    {"from_json", from_json},
    {"indent", indented},
    {"int", to_integer},
    {"items", filters::items},
    {"join", filters::join},
    {"last", filters::last},
    {"length", filters::length},
    {"list", filters::list},
    {"lower", changed_text<to_lower>},
    {"map", filters::map},
    {"max", filters::max},
    {"min", filters::min},
    {"reject", filters::reject},
    {"rejectattr", filters::reject_by_attribute},
    {"replace", replaced},
    {"reverse", filters::reverse},
    {"round", rounded},
    {"safe", marked_safe},
    {"select", filters::select},
    {"selectattr", filters::select_by_attribute},
    {"sort", filters::sort},
    {"string", as_text},
    {"sum", filters::sum},
    {"title", changed_text<title_case>},
    {"tojson", as_json},
    {"trim", trimmed},
    {"unique", filters::unique},
    {"upper", changed_text<to_upper>},
    {"wordcount", count_words},
};

}  // namespace

FilterFunction find_filter(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kFilters), std::end(kFilters),
                   [name](const auto& filter) { return filter.first == name; });
  return found != std::end(kFilters) ? found->second : nullptr;
}

}  // namespace rigel::text::chat
