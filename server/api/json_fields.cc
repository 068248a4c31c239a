#include "server/api/json_fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace rigel::server {
namespace {

constexpr std::size_t kMaxShownBytes = 80;

// A document this deep is an attack, not a request; a limit keeps every later recursion over the tree safe.
constexpr int kMaxDepth = 64;
constexpr int kMaxKeys = 4096;  // of one object

template <typename T>
std::string allowed(const Range<T>& range) {
  const bool open_low = range.low == std::numeric_limits<T>::lowest();
  const bool open_high = range.high == std::numeric_limits<T>::max();
  if (open_low && open_high) {
    return "any";
  }
  const std::string low =
      fmt::format("{} {}", range.above ? "greater than" : "at least", range.low);
  if (open_high) {
    return low;
  }
  return range.above ? fmt::format("{} and at most {}", low, range.high)
                     : fmt::format("between {} and {}", range.low, range.high);
}

template <typename T>
bool contains(const Range<T>& range, T x) {
  return (range.above ? x > range.low : x >= range.low) && x <= range.high;
}

/// What about a text's shape would cost too much to parse or to walk: its nesting, or an object's number of keys (the library
/// looks for each new key among all before it). Nothing if all is well. Reads any text, JSON or not.
std::optional<std::string> find_excess(std::string_view text) {
  std::array<int, kMaxDepth + 1> num_keys{};
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      i += c == '\\' ? 1 : 0;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) {
        return fmt::format("is nested deeper than {} levels", kMaxDepth);
      }
      num_keys[static_cast<std::size_t>(depth)] = 0;
    } else if (c == ']' || c == '}') {
      depth = std::max(depth - 1, 0);
    } else if (c == ':' && ++num_keys[static_cast<std::size_t>(depth)] > kMaxKeys) {
      return fmt::format("has an object with more than {} keys", kMaxKeys);
    }
  }
  return std::nullopt;
}

}  // namespace

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMaxShownBytes) {
    text.resize(kMaxShownBytes);
    text += "...";
  }
  return text;
}

const Json* JsonFields::find(std::string_view name) {
  known_.push_back(name);
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

bool JsonFields::boolean(std::string_view name, bool& out) {
  const Json* value = find(name);
  if (value == nullptr) {
    return false;
  }
  if (!value->is_boolean()) {
    fail(name, fmt::format("{} must be true or false, got {}", name, shown(*value)));
    return false;
  }
  out = value->get<bool>();
  return true;
}

bool JsonFields::string(std::string_view name, std::string& out) {
  const Json* value = find(name);
  if (value == nullptr) {
    return false;
  }
  if (!value->is_string()) {
    fail(name, fmt::format("{} must be a string, got {}", name, shown(*value)));
    return false;
  }
  out = value->get<std::string>();
  return true;
}

bool JsonFields::integer(std::string_view name, Range<std::int64_t> range, std::int64_t& out) {
  const Json* value = find(name);
  if (value == nullptr) {
    return false;
  }
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() ||
                     value->get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max());
  if (!fits || !contains(range, value->get<std::int64_t>())) {
    const std::string bounds = allowed(range);
    fail(name, fmt::format("{} must be an integer{}{}, got {}", name, bounds == "any" ? "" : ", ",
                           bounds == "any" ? "" : bounds, shown(*value)));
    return false;
  }
  out = value->get<std::int64_t>();
  return true;
}

bool JsonFields::integer(std::string_view name, Range<std::int64_t> range, int& out) {
  range.high = std::min<std::int64_t>(range.high, std::numeric_limits<int>::max());
  range.low = std::max<std::int64_t>(range.low, std::numeric_limits<int>::lowest());
  std::int64_t wide = 0;
  if (!integer(name, range, wide)) {
    return false;
  }
  out = static_cast<int>(wide);
  return true;
}

bool JsonFields::real(std::string_view name, Range<double> range, float& out) {
  const Json* value = find(name);
  if (value == nullptr) {
    return false;
  }
  if (!value->is_number() || !contains(range, value->get<double>()) ||
      std::abs(value->get<double>()) > std::numeric_limits<float>::max()) {
    fail(name, fmt::format("{} must be a number, {}, got {}", name, allowed(range), shown(*value)));
    return false;
  }
  out = static_cast<float>(value->get<double>());
  return true;
}

bool JsonFields::strings(std::string_view name, std::size_t max_num_items,
                         std::vector<std::string>& out) {
  const Json* value = find(name);
  if (value == nullptr) {
    return false;
  }
  std::vector<std::string> items;
  if (value->is_string()) {
    items.push_back(value->get<std::string>());
  } else if (value->is_array()) {
    for (const Json& item : *value) {
      if (!item.is_string()) {
        fail(name,
             fmt::format("{} must be a string or a list of strings, got {}", name, shown(*value)));
        return false;
      }
      items.push_back(item.get<std::string>());
    }
  } else {
    fail(name,
         fmt::format("{} must be a string or a list of strings, got {}", name, shown(*value)));
    return false;
  }
  if (items.size() > max_num_items) {
    fail(name,
         fmt::format("{} may hold at most {} strings, got {}", name, max_num_items, items.size()));
    return false;
  }
  if (std::any_of(items.begin(), items.end(), [](const std::string& s) { return s.empty(); })) {
    fail(name, fmt::format("{} must not hold an empty string, got {}", name, shown(*value)));
    return false;
  }
  out = std::move(items);
  return true;
}

bool JsonFields::token_ids(std::string_view name, int vocab_size, std::vector<std::int32_t>& out) {
  const Json* value = find(name);
  if (value == nullptr) {
    return false;
  }
  if (const auto wrong = read_token_ids(*value, vocab_size, out)) {
    fail(name, fmt::format("{} {}", name, *wrong));
    return false;
  }
  return true;
}

void JsonFields::accept(std::span<const std::string_view> names) {
  known_.insert(known_.end(), names.begin(), names.end());
}

void JsonFields::fail(std::string_view name, std::string message) {
  if (!error_) {
    error_ = ApiError{.status = 400, .message = std::move(message), .param = std::string(name)};
  }
}

std::vector<std::string> JsonFields::unknown_fields() const {
  std::vector<std::string> unknown;
  for (const auto& [name, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), name) == known_.end()) {
      unknown.push_back(name);
    }
  }
  return unknown;
}

std::optional<std::string> read_token_ids(const Json& value, int vocab_size,
                                          std::vector<std::int32_t>& out) {
  if (!value.is_array()) {
    return fmt::format("must be a list of token ids, got {}", shown(value));
  }
  std::vector<std::int32_t> ids;
  ids.reserve(value.size());
  for (const Json& item : value) {
    if (!item.is_number_unsigned() ||
        item.get<std::uint64_t>() >= static_cast<std::uint64_t>(vocab_size)) {
      return fmt::format("must hold token ids between 0 and {}, got {}", vocab_size - 1,
                         shown(item));
    }
    ids.push_back(item.get<std::int32_t>());
  }
  out = std::move(ids);
  return std::nullopt;
}

Parsed<Json> parse_object(std::string_view text) {
  if (const auto excess = find_excess(text)) {
    return ApiError{.message = "The request " + *excess};
  }
  Json document;
  try {
    document = Json::parse(text);
  } catch (const Json::exception& problem) {
    // The library's text names the byte and what was expected there; its "[json.exception...]" tag helps nobody.
    const std::string_view what = problem.what();
    const std::size_t tag_end = what.find("] ");
    return ApiError{.message = fmt::format(
                        "The request is not JSON: {}",
                        tag_end == std::string_view::npos ? what : what.substr(tag_end + 2))};
  }
  if (!document.is_object()) {
    return ApiError{.message =
                        fmt::format("The request must be a JSON object, got {}", shown(document))};
  }
  return document;
}

}  // namespace rigel::server
