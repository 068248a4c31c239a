// JSON text to values. The only file of this room that knows a JSON library.
#include "text/text_error.h"
#include "text/value.h"

#include <nlohmann/json.hpp>

#include <limits>

namespace rigel::text {
namespace {

using Json = nlohmann::json;

/// Builds a value from the parser's events, without a document of the library's own in between.
class ValueBuilder : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return put(Value::none()); }
  bool boolean(bool value) override { return put(Value::boolean(value)); }
  bool number_integer(number_integer_t value) override { return put(Value::integer(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    constexpr auto kMax = static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max());
    return put(value <= kMax ? Value::integer(static_cast<int64_t>(value))
                             : Value::big_integer(std::to_string(value)));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    const bool is_integer = text.find_first_of(".eE") == string_t::npos;
    return put(is_integer ? Value::big_integer(text) : Value::real(value));
  }
  bool string(string_t& value) override { return put(Value::string(std::move(value))); }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override { return open(/*is_object=*/true); }
  bool start_array(std::size_t) override { return open(/*is_object=*/false); }
  bool key(string_t& key) override {
    open_.back().key = std::move(key);
    return true;
  }
  bool end_object() override {
    Dictionary entries = std::move(open_.back().entries);
    open_.pop_back();
    return put(Value::dictionary(std::move(entries)));
  }
  bool end_array() override {
    ValueList items = std::move(open_.back().items);
    open_.pop_back();
    return put(Value::list(std::move(items)));
  }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    throw TextError(std::string("not a JSON text: ") + error.what());
  }

  Value take() { return std::move(root_); }

 private:
  struct Container {
    bool is_object;
    std::string key;
    Dictionary entries;
    ValueList items;
  };

  bool open(bool is_object) {
    if (open_.size() >= Value::kMaxDepth) {
      throw TextError("JSON text nests deeper than " + std::to_string(Value::kMaxDepth) +
                      " levels");
    }
    open_.push_back({is_object, {}, {}, {}});
    return true;
  }

  bool put(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (Container& container = open_.back(); container.is_object) {
      container.entries.set(Value::string(std::move(container.key)), std::move(value));
    } else {
      container.items.push_back(std::move(value));
    }
    return true;
  }

  std::vector<Container> open_;
  Value root_;
};

}  // namespace

Value parse_json(std::string_view json) {
  ValueBuilder builder;
  Json::sax_parse(json.begin(), json.end(), &builder);
  return builder.take();
}

}  // namespace rigel::text
