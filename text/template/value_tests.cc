#include "text/template/value_tests.h"

#include "text/template/arguments.h"
#include "text/template/operations.h"
#include "text/text_error.h"
#include "text/unicode.h"

#include <algorithm>

namespace rigel::text::chat {
namespace {

using Kind = Value::Kind;

template <Kind... kKinds>
bool is_of_kind(const Value& input, const Arguments& arguments) {
  const Parameters parameters("this test", {}, arguments);
  return (input.is(kKinds) || ...);
}

bool is_defined(const Value& input, const Arguments& arguments) {
  return !is_of_kind<Kind::kUndefined>(input, arguments);
}

bool is_true_itself(const Value& input, const Arguments& arguments) {
  return is_of_kind<Kind::kBoolean>(input, arguments) && input.is_true();
}

bool is_false_itself(const Value& input, const Arguments& arguments) {
  return is_of_kind<Kind::kBoolean>(input, arguments) && !input.is_true();
}

template <Relation kRelation>
bool relates(const Value& input, const Arguments& arguments) {
  const Parameters parameters("this test", {"other"}, arguments);
  return compare(kRelation, input, parameters.value(0));
}

/// `is sameas`: identity, which values that never change have by being equal and of one type.
bool is_same(const Value& input, const Arguments& arguments) {
  const Parameters parameters("sameas", {"other"}, arguments);
  return input.kind() == parameters.value(0).kind() && input == parameters.value(0);
}

int64_t remainder(const Value& input, int64_t divisor) {
  if (!input.is_integral() || divisor == 0) {
    throw TextError("divisibility is a question of integers, and not of division by zero");
  }
  return divisor == -1 ? 0 : input.as_integer() % divisor;
}

bool is_odd(const Value& input, const Arguments&) {
  return remainder(input, 2) != 0;
}

bool is_even(const Value& input, const Arguments&) {
  return remainder(input, 2) == 0;
}

bool is_divisible(const Value& input, const Arguments& arguments) {
  const Parameters parameters("divisibleby", {"num"}, arguments);
  return remainder(input, parameters.integer(0, 0)) == 0;
}

template <std::string (*kChange)(std::string_view)>
bool is_in_case(const Value& input, const Arguments&) {
  const std::string text = to_text(input);
  return kChange(text) == text && to_lower(text) != to_upper(text);
}

constexpr std::pair<std::string_view, TestFunction> kTests[] = {
    {"!=", relates<Relation::kNotEqual>},
    {"<", relates<Relation::kLess>},
    {"<=", relates<Relation::kLessOrEqual>},
    {"==", relates<Relation::kEqual>},
    {">", relates<Relation::kGreater>},
    {">=", relates<Relation::kGreaterOrEqual>},
    {"boolean", is_of_kind<Kind::kBoolean>},
    {"callable", is_of_kind<Kind::kCallable>},
    {"defined", is_defined},
    {"divisibleby", is_divisible},
    {"eq", relates<Relation::kEqual>},
    {"equalto", relates<Relation::kEqual>},
    {"even", is_even},
    {"false", is_false_itself},
    {"float", is_of_kind<Kind::kFloat>},
    {"ge", relates<Relation::kGreaterOrEqual>},
    {"greaterthan", relates<Relation::kGreater>},
    {"gt", relates<Relation::kGreater>},
    {"in", relates<Relation::kIn>},
    {"integer", is_of_kind<Kind::kInteger, Kind::kBigInteger>},
    // An undefined value iterates as empty, and Python finds a sequence's methods on it.
    {"iterable", is_of_kind<Kind::kString, Kind::kList, Kind::kTuple, Kind::kView, Kind::kGenerator,
                            Kind::kDictionary, Kind::kUndefined, Kind::kLoop>},
    {"le", relates<Relation::kLessOrEqual>},
    {"lessthan", relates<Relation::kLess>},
    {"lower", is_in_case<to_lower>},
    {"lt", relates<Relation::kLess>},
    {"mapping", is_of_kind<Kind::kDictionary>},
    {"ne", relates<Relation::kNotEqual>},
    {"none", is_of_kind<Kind::kNone>},
    {"number", is_of_kind<Kind::kBoolean, Kind::kInteger, Kind::kFloat, Kind::kBigInteger>},
    {"odd", is_odd},
    {"sameas", is_same},
    {"sequence",
     is_of_kind<Kind::kString, Kind::kList, Kind::kTuple, Kind::kDictionary, Kind::kUndefined>},
    {"string", is_of_kind<Kind::kString>},
    {"true", is_true_itself},
    {"undefined", is_of_kind<Kind::kUndefined>},
    {"upper", is_in_case<to_upper>},
};

}  // namespace

TestFunction find_test(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kTests), std::end(kTests),
                                         [name](const auto& test) { return test.first == name; });
  return found != std::end(kTests) ? found->second : nullptr;
}

}  // namespace rigel::text::chat
