#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace rigel::text {

class Value;
using ValueList = std::vector<Value>;

/// Key-value pairs in the order they came. Text keys of larger ones are found through a hash table.
class Dictionary {
 public:
  using Entry = std::pair<Value, Value>;

  /// The value of `key` by Python's ==, or nullptr.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;

  /// Sets `key`; a key that is there keeps its place.
  void set(Value key, Value value);

  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::size_t index_of(const Value& key) const;
  std::size_t index_of(std::string_view key) const;

  std::vector<Entry> entries_;
  // Text keys to places, once there are enough of them. The keys are the shared strings of entries_.
  std::unordered_map<std::string_view, std::size_t> places_;
};

/// A value of the template language, with Python's meaning of printing, truth and equality.
///
/// Cheap to copy: strings and containers are shared and never change. Lists and dictionaries nest at most
/// kMaxDepth deep (making a deeper one throws TextError), so walks over a value may recurse.
/// Thread: any (immutable), but for the objects of a running template, which stay in their render.
class Value {
 public:
  enum class Kind : uint8_t {
    kUndefined,  // what a missing variable or attribute is
    kNone,
    kBoolean,
    kInteger,
    kFloat,
    kBigInteger,  // of a JSON text, beyond 64 bits: printed as written, else a float
    kString,
    kList,
    kTuple,
    kView,       // what items(), keys() and values() of a dictionary give
    kGenerator,  // what lazy filters give: it has no length and is always true
    kDictionary,
    kNamespace,  // these three exist in a running template only
    kLoop,
    kCallable,
  };

  /// A mutable or callable thing of a running template.
  struct Object {
    virtual ~Object() = default;
  };

  static constexpr uint16_t kMaxDepth = 200;

  Value() = default;  // none

  static Value undefined(
      std::string why);  // `why` is the message when it is used as if it were there
  static Value none() { return {}; }
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value real(double value);
  static Value big_integer(std::string digits);
  static Value string(std::string value);
  /// Text marked by the filter `safe`: a string, but what is added to it is escaped for HTML (Python's Markup).
  static Value markup(std::string value);
  static Value list(ValueList items, Kind kind = Kind::kList);  // or kTuple, kView, kGenerator
  static Value dictionary(Dictionary entries);
  static Value object(Kind kind, std::shared_ptr<Object> object);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_number() const;    // booleans, too, as in Python
  bool is_integral() const;  // an integer or a boolean
  bool is_markup() const { return is_markup_; }
  bool has_items() const;  // list, tuple, view or generator

  // Preconditions: the value is of that kind.
  const std::string& as_string()
      const;  // also why something is undefined, and digits of a big integer
  const ValueList& items() const;
  const Dictionary& as_dictionary() const;
  int64_t as_integer() const;  // is_integral()
  double as_real() const;      // is_number()
  Object* as_object() const;
  std::shared_ptr<Object> share_object() const;

  bool is_true() const;

  /// Python's ==: deep, and 1 == 1.0 == True.
  friend bool operator==(const Value& a, const Value& b);

 private:
  struct List {
    ValueList items;
    uint16_t depth;
  };
  struct Entries {
    Dictionary dictionary;
    uint16_t depth;
  };

  uint16_t depth() const;

  Kind kind_ = Kind::kNone;
  bool is_markup_ = false;
  std::variant<std::monostate, int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const List>, std::shared_ptr<const Entries>, std::shared_ptr<Object>>
      data_;
};

/// Python's name of the value's type: str, list, NoneType ...
std::string_view type_name(const Value& value);

/// Python's str(value) and repr(value). Throw TextError for values that print as an address there.
std::string to_text(const Value& value);
std::string to_representation(const Value& value);

/// Python's repr of a float: the shortest digits that read back the same.
std::string format_real(double value);

/// Reads a JSON text, keeping the order of keys; `1.0` is a float, `1` an integer.
/// Throws TextError naming the position if it is no JSON text or nests deeper than Value::kMaxDepth.
Value parse_json(std::string_view json);

/// How json.dumps writes; the defaults are those of the `tojson` of chat templates.
struct JsonFormat {
  int indent = -1;  // spaces a level, each item on its own line; -1: all on one line
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

/// Python's json.dumps(value). Throws TextError for values that have no JSON form.
std::string to_json(const Value& value, const JsonFormat& format = {});

}  // namespace rigel::text
