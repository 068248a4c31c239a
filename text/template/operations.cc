#include "text/template/operations.h"

#include "text/template/text_operations.h"
#include "text/text_error.h"
#include "text/utf8.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace rigel::text::chat {
namespace {

// Texts and lists made by an operator may not grow beyond this.
constexpr std::size_t kMaxRepeated = std::size_t{1} << 24;

[[noreturn]] void fail_operands(std::string_view op, const Value& left, const Value& right) {
  throw TextError(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", op,
                              type_name(left), type_name(right)));
}

[[noreturn]] void fail_overflow() {
  throw TextError("an integer does not fit into 64 bits");
}

bool is_sequence(const Value& value) {
  return value.is(Value::Kind::kList) || value.is(Value::Kind::kTuple);
}

std::string markup_of(const Value& text) {
  return text.is_markup() ? text.as_string() : escape_html(text.as_string());
}

Value add(const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) {
    int64_t sum = 0;
    if (__builtin_add_overflow(left.as_integer(), right.as_integer(), &sum)) {
      fail_overflow();
    }
    return Value::integer(sum);
  }
  if (left.is_number() && right.is_number()) {
    return Value::real(left.as_real() + right.as_real());
  }
  if (left.is_string() && right.is_string() && (left.is_markup() || right.is_markup())) {
    return Value::markup(markup_of(left) + markup_of(right));
  }
  if (left.is_string() && right.is_string()) {
    return Value::string(left.as_string() + right.as_string());
  }
  if (is_sequence(left) && left.kind() == right.kind()) {
    ValueList items = left.items();
    items.insert(items.end(), right.items().begin(), right.items().end());
    return Value::list(std::move(items), left.kind());
  }
  if (left.is_string() || is_sequence(left)) {
    throw TextError(fmt::format("can only concatenate {0} (not \"{1}\") to {0}", type_name(left),
                                type_name(right)));
  }
  fail_operands("+", left, right);
}

Value subtract(const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) {
    int64_t difference = 0;
    if (__builtin_sub_overflow(left.as_integer(), right.as_integer(), &difference)) {
      fail_overflow();
    }
    return Value::integer(difference);
  }
  if (left.is_number() && right.is_number()) {
    return Value::real(left.as_real() - right.as_real());
  }
  fail_operands("-", left, right);
}

Value repeat(const Value& sequence, int64_t count) {
  const std::size_t n = count > 0 ? static_cast<std::size_t>(count) : 0;
  const std::size_t size =
      sequence.is_string() ? sequence.as_string().size() : sequence.items().size();
  if (n > kMaxRepeated || size * n > kMaxRepeated) {
    throw TextError("a repeated text or list is too long");
  }
  if (sequence.is_string()) {
    std::string text;
    for (std::size_t i = 0; i < n; ++i) {
      text += sequence.as_string();
    }
    return Value::string(std::move(text));
  }
  ValueList items;
  for (std::size_t i = 0; i < n; ++i) {
    items.insert(items.end(), sequence.items().begin(), sequence.items().end());
  }
  return Value::list(std::move(items), sequence.kind());
}

Value multiply(const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) {
    int64_t product = 0;
    if (__builtin_mul_overflow(left.as_integer(), right.as_integer(), &product)) {
      fail_overflow();
    }
    return Value::integer(product);
  }
  if (left.is_number() && right.is_number()) {
    return Value::real(left.as_real() * right.as_real());
  }
  if ((left.is_string() || is_sequence(left)) && right.is_integral()) {
    return repeat(left, right.as_integer());
  }
  if ((right.is_string() || is_sequence(right)) && left.is_integral()) {
    return repeat(right, left.as_integer());
  }
  fail_operands("*", left, right);
}

/// Division that rounds down, and the remainder with the sign of the divisor.
Value divide_down(const Value& left, const Value& right, bool wants_remainder) {
  if (left.is_integral() && right.is_integral()) {
    const int64_t a = left.as_integer();
    const int64_t b = right.as_integer();
    if (b == -1) {  // the one division that can overflow
      return wants_remainder ? Value::integer(0) : negate(Value::integer(a), /*is_plus=*/false);
    }
    const bool rounds_up = a % b != 0 && (a % b < 0) != (b < 0);
    return Value::integer(wants_remainder ? a % b + (rounds_up ? b : 0)
                                          : a / b - (rounds_up ? 1 : 0));
  }
  const double quotient = std::floor(left.as_real() / right.as_real());
  return Value::real(wants_remainder ? left.as_real() - quotient * right.as_real() : quotient);
}

Value power(const Value& base, const Value& exponent) {
  if (!base.is_integral() || !exponent.is_integral() || exponent.as_integer() < 0) {
    return Value::real(std::pow(base.as_real(), exponent.as_real()));
  }
  Value result = Value::integer(1);
  // An integer power above 64 factors overflows or is of 0, 1 or -1.
  const int64_t small =
      exponent.as_integer() > 64 ? 64 + exponent.as_integer() % 2 : exponent.as_integer();
  for (int64_t i = 0; i < small; ++i) {
    result = multiply(result, base);
  }
  return result;
}

Value divide(BinaryOperator op, const Value& left, const Value& right) {
  const std::string_view symbol = op == BinaryOperator::kDivide        ? "/"
                                  : op == BinaryOperator::kFloorDivide ? "//"
                                                                       : "%";
  if (op == BinaryOperator::kModulo && left.is_string()) {
    throw TextError("formatting a text with % is not supported");
  }
  if (!left.is_number() || !right.is_number()) {
    fail_operands(symbol, left, right);
  }
  if (right.as_real() == 0) {
    throw TextError("division by zero");
  }
  if (op == BinaryOperator::kDivide) {
    return Value::real(left.as_real() / right.as_real());
  }
  return divide_down(left, right, op == BinaryOperator::kModulo);
}

bool contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      throw TextError(
          fmt::format("'in <string>' requires string as left operand, not {}", type_name(item)));
    }
    return container.as_string().find(item.as_string()) != std::string::npos;
  }
  if (container.is(Value::Kind::kDictionary)) {
    return container.as_dictionary().find(item) != nullptr;
  }
  if (container.is_undefined()) {
    return false;
  }
  if (!container.has_items()) {
    throw TextError(fmt::format("argument of type '{}' is not iterable", type_name(container)));
  }
  const ValueList& items = container.items();
  return std::find(items.begin(), items.end(), item) != items.end();
}

}  // namespace

Value negate(const Value& operand, bool is_plus) {
  if (operand.is(Value::Kind::kFloat)) {
    return is_plus ? operand : Value::real(-operand.as_real());
  }
  if (!operand.is_integral()) {
    if (operand.is_undefined()) {
      throw TextError(operand.as_string());
    }
    throw TextError(fmt::format("bad operand type for unary {}: '{}'", is_plus ? '+' : '-',
                                type_name(operand)));
  }
  return is_plus ? Value::integer(operand.as_integer()) : subtract(Value::integer(0), operand);
}

Value apply(BinaryOperator op, const Value& left, const Value& right) {
  if (op == BinaryOperator::kConcatenate) {
    return Value::string(to_text(left) + to_text(right));
  }
  if (left.is_undefined() || right.is_undefined()) {
    throw TextError(left.is_undefined() ? left.as_string() : right.as_string());
  }
  switch (op) {
    case BinaryOperator::kAdd:
      return add(left, right);
    case BinaryOperator::kSubtract:
      return subtract(left, right);
    case BinaryOperator::kMultiply:
      return multiply(left, right);
    case BinaryOperator::kPower:
      if (!left.is_number() || !right.is_number()) {
        fail_operands("**", left, right);
      }
      return power(left, right);
    default:
      return divide(op, left, right);
  }
}

bool is_less(const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    return left.is_integral() && right.is_integral() ? left.as_integer() < right.as_integer()
                                                     : left.as_real() < right.as_real();
  }
  if (left.is_string() && right.is_string()) {
    return left.as_string() < right.as_string();  // bytes of UTF-8 order as code points do
  }
  if (is_sequence(left) && left.kind() == right.kind()) {
    const auto [a, b] = std::mismatch(left.items().begin(), left.items().end(),
                                      right.items().begin(), right.items().end());
    if (a == left.items().end() || b == right.items().end()) {
      return b != right.items().end();
    }
    return is_less(*a, *b);
  }
  if (left.is_undefined() || right.is_undefined()) {
    throw TextError(left.is_undefined() ? left.as_string() : right.as_string());
  }
  throw TextError(fmt::format("'<' not supported between instances of '{}' and '{}'",
                              type_name(left), type_name(right)));
}

bool compare(Relation relation, const Value& left, const Value& right) {
  switch (relation) {
    case Relation::kEqual:
      return left == right;
    case Relation::kNotEqual:
      return !(left == right);
    case Relation::kLess:
      return is_less(left, right);
    case Relation::kLessOrEqual:
      return is_less(left, right) || left == right;
    case Relation::kGreater:
      return is_less(right, left);
    case Relation::kGreaterOrEqual:
      return is_less(right, left) || left == right;
    case Relation::kIn:
      return contains(right, left);
    case Relation::kNotIn:
      break;
  }
  return !contains(right, left);
}

ValueList characters_of(std::string_view text) {
  ValueList characters;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t num_bytes = decode_character(text, i).num_bytes;
    characters.push_back(Value::string(std::string(text.substr(i, num_bytes))));
    i += num_bytes;
  }
  return characters;
}

ValueList iterate(const Value& value) {
  if (value.has_items()) {
    return value.items();
  }
  if (value.is_string()) {
    return characters_of(value.as_string());
  }
  if (value.is_undefined()) {
    return {};
  }
  if (!value.is(Value::Kind::kDictionary)) {
    throw TextError(fmt::format("'{}' object is not iterable", type_name(value)));
  }
  ValueList keys;
  for (const auto& [key, item] : value.as_dictionary().entries()) {
    keys.push_back(key);
  }
  return keys;
}

int64_t length_of(const Value& value) {
  if (value.is_string()) {
    const std::string& text = value.as_string();
    int64_t num_characters = 0;
    for (std::size_t i = 0; i < text.size(); i += decode_character(text, i).num_bytes) {
      ++num_characters;
    }
    return num_characters;
  }
  if (value.is_undefined()) {
    return 0;
  }
  if (value.is(Value::Kind::kDictionary)) {
    return static_cast<int64_t>(value.as_dictionary().entries().size());
  }
  if (!value.has_items() || value.is(Value::Kind::kGenerator)) {
    throw TextError(fmt::format("object of type '{}' has no len()", type_name(value)));
  }
  return static_cast<int64_t>(value.items().size());
}

}  // namespace rigel::text::chat
