#include "text/value.h"

#include "text/text_error.h"

#include <algorithm>
#include <cstdlib>

namespace rigel::text {
namespace {

// A dictionary of fewer entries is searched faster than hashed.
constexpr std::size_t kMinHashed = 16;

uint16_t deeper(uint16_t depth) {
  if (depth >= Value::kMaxDepth) {
    throw TextError("a value nests deeper than " + std::to_string(Value::kMaxDepth) + " levels");
  }
  return static_cast<uint16_t>(depth + 1);
}

}  // namespace

std::size_t Dictionary::index_of(std::string_view key) const {
  if (!places_.empty()) {
    const auto place = places_.find(key);
    return place != places_.end() ? place->second : entries_.size();
  }
  const auto found = std::find_if(entries_.begin(), entries_.end(), [key](const Entry& entry) {
    return entry.first.is_string() && entry.first.as_string() == key;
  });
  return static_cast<std::size_t>(found - entries_.begin());
}

std::size_t Dictionary::index_of(const Value& key) const {
  if (key.is_string()) {
    return index_of(key.as_string());
  }
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&key](const Entry& entry) { return entry.first == key; });
  return static_cast<std::size_t>(found - entries_.begin());
}

const Value* Dictionary::find(const Value& key) const {
  const std::size_t i = index_of(key);
  return i < entries_.size() ? &entries_[i].second : nullptr;
}

const Value* Dictionary::find(std::string_view key) const {
  const std::size_t i = index_of(key);
  return i < entries_.size() ? &entries_[i].second : nullptr;
}

void Dictionary::set(Value key, Value value) {
  const std::size_t i = index_of(key);
  if (i < entries_.size()) {
    entries_[i].second = std::move(value);
    return;
  }
  entries_.emplace_back(std::move(key), std::move(value));
  if (entries_.size() < kMinHashed) {
    return;
  }
  for (std::size_t k = places_.empty() ? 0 : i; k < entries_.size(); ++k) {
    if (entries_[k].first.is_string()) {
      places_.emplace(entries_[k].first.as_string(), k);
    }
  }
}

Value Value::undefined(std::string why) {
  Value value = string(std::move(why));
  value.kind_ = Kind::kUndefined;
  return value;
}

Value Value::boolean(bool flag) {
  Value value = integer(flag ? 1 : 0);
  value.kind_ = Kind::kBoolean;
  return value;
}

Value Value::integer(int64_t number) {
  Value value;
  value.kind_ = Kind::kInteger;
  value.data_ = number;
  return value;
}

Value Value::real(double number) {
  Value value;
  value.kind_ = Kind::kFloat;
  value.data_ = number;
  return value;
}

Value Value::big_integer(std::string digits) {
  Value value = string(std::move(digits));
  value.kind_ = Kind::kBigInteger;
  return value;
}

Value Value::string(std::string text) {
  Value value;
  value.kind_ = Kind::kString;
  value.data_ = std::make_shared<const std::string>(std::move(text));
  return value;
}

Value Value::markup(std::string text) {
  Value value = string(std::move(text));
  value.is_markup_ = true;
  return value;
}

Value Value::list(ValueList items, Kind kind) {
  uint16_t depth = 0;
  for (const Value& item : items) {
    depth = std::max(depth, item.depth());
  }
  Value value;
  value.kind_ = kind;
  value.data_ = std::make_shared<const List>(List{std::move(items), deeper(depth)});
  return value;
}

Value Value::dictionary(Dictionary entries) {
  uint16_t depth = 0;
  for (const auto& [key, item] : entries.entries()) {
    depth = std::max({depth, key.depth(), item.depth()});
  }
  Value value;
  value.kind_ = Kind::kDictionary;
  value.data_ = std::make_shared<const Entries>(Entries{std::move(entries), deeper(depth)});
  return value;
}

Value Value::object(Kind kind, std::shared_ptr<Object> object) {
  Value value;
  value.kind_ = kind;
  value.data_ = std::move(object);
  return value;
}

bool Value::is_number() const {
  return is_integral() || is(Kind::kFloat) || is(Kind::kBigInteger);
}

bool Value::is_integral() const {
  return is(Kind::kInteger) || is(Kind::kBoolean);
}

bool Value::has_items() const {
  return kind_ >= Kind::kList && kind_ <= Kind::kGenerator;
}

const std::string& Value::as_string() const {
  return *std::get<std::shared_ptr<const std::string>>(data_);
}

const ValueList& Value::items() const {
  return std::get<std::shared_ptr<const List>>(data_)->items;
}

const Dictionary& Value::as_dictionary() const {
  return std::get<std::shared_ptr<const Entries>>(data_)->dictionary;
}

int64_t Value::as_integer() const {
  return std::get<int64_t>(data_);
}

double Value::as_real() const {
  if (is(Kind::kBigInteger)) {
    return std::strtod(as_string().c_str(),
                       nullptr);  // at most a few hundred digits, else infinity
  }
  return is(Kind::kFloat) ? std::get<double>(data_) : static_cast<double>(as_integer());
}

Value::Object* Value::as_object() const {
  return std::get<std::shared_ptr<Object>>(data_).get();
}

std::shared_ptr<Value::Object> Value::share_object() const {
  return std::get<std::shared_ptr<Object>>(data_);
}

uint16_t Value::depth() const {
  if (has_items()) {
    return std::get<std::shared_ptr<const List>>(data_)->depth;
  }
  return is(Kind::kDictionary) ? std::get<std::shared_ptr<const Entries>>(data_)->depth : 0;
}

bool Value::is_true() const {
  switch (kind_) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBoolean:
    case Kind::kInteger:
      return as_integer() != 0;
    case Kind::kFloat:
    case Kind::kBigInteger:
      return as_real() != 0;
    case Kind::kString:
      return !as_string().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return !items().empty();
    case Kind::kDictionary:
      return !as_dictionary().entries().empty();
    case Kind::kGenerator:
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kCallable:
      break;
  }
  return true;
}

bool operator==(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is(Value::Kind::kBigInteger) && b.is(Value::Kind::kBigInteger)) {
      return a.as_string() == b.as_string();
    }
    return a.is_integral() && b.is_integral() ? a.as_integer() == b.as_integer()
                                              : a.as_real() == b.as_real();
  }
  if (a.kind_ != b.kind_) {
    return false;
  }
  switch (a.kind_) {
    case Value::Kind::kString:
      return a.as_string() == b.as_string();
    case Value::Kind::kList:
    case Value::Kind::kTuple:
    case Value::Kind::kView:
      return a.items() == b.items();
    case Value::Kind::kDictionary: {
      const auto& entries = a.as_dictionary().entries();
      return entries.size() == b.as_dictionary().entries().size() &&
             std::all_of(entries.begin(), entries.end(), [&b](const Dictionary::Entry& entry) {
               const Value* other = b.as_dictionary().find(entry.first);
               return other != nullptr && *other == entry.second;
             });
    }
    case Value::Kind::kGenerator:
      return &a.items() == &b.items();
    case Value::Kind::kNamespace:
    case Value::Kind::kLoop:
    case Value::Kind::kCallable:
      return a.as_object() == b.as_object();
    default:
      return true;  // undefined and none have one value each
  }
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return "Undefined";
    case Value::Kind::kNone:
      return "NoneType";
    case Value::Kind::kBoolean:
      return "bool";
    case Value::Kind::kInteger:
    case Value::Kind::kBigInteger:
      return "int";
    case Value::Kind::kFloat:
      return "float";
    case Value::Kind::kString:
      return "str";
    case Value::Kind::kList:
      return "list";
    case Value::Kind::kTuple:
      return "tuple";
    case Value::Kind::kView:
      return "dict view";
    case Value::Kind::kGenerator:
      return "generator";
    case Value::Kind::kDictionary:
      return "dict";
    case Value::Kind::kNamespace:
      return "Namespace";
    case Value::Kind::kLoop:
      return "LoopContext";
    case Value::Kind::kCallable:
      break;
  }
  return "function";
}

}  // namespace rigel::text
