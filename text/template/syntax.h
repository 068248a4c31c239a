#pragma once

#include "text/value.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

/// The syntax tree of a chat template. Built by the parser, then never changed.
namespace rigel::text::chat {

struct Arguments;

using NameId = int32_t;  // a variable's name, by number

/// A filter or test looked up by name when the template is parsed.
using FilterFunction = Value (*)(const Value& input, const Arguments& arguments);
using TestFunction = bool (*)(const Value& input, const Arguments& arguments);

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Block = std::vector<Statement>;

struct ArgumentList {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> keywords;
};

struct Constant {
  Value value;
};
struct Variable {
  NameId name;
  std::string text;
};
struct ListLiteral {
  std::vector<ExpressionPtr> items;
  bool is_tuple;
};
struct DictionaryLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
struct AttributeAccess {
  ExpressionPtr object;
  std::string name;
};
struct ItemAccess {
  ExpressionPtr object;
  ExpressionPtr key;
};
struct SliceAccess {
  ExpressionPtr object;
  ExpressionPtr begin, end, step;  // each may be missing
};
struct Call {
  ExpressionPtr callee;
  ArgumentList arguments;
};
struct FilterCall {
  ExpressionPtr input;  // missing in a filter block: the block's text
  FilterFunction function;
  ArgumentList arguments;
};
struct TestCall {
  ExpressionPtr input;
  TestFunction function;
  ArgumentList arguments;
};
struct Not {
  ExpressionPtr operand;
};
struct Negation {
  ExpressionPtr operand;
  bool is_plus;
};
enum class BinaryOperator {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kConcatenate
};
struct Binary {
  BinaryOperator op;
  ExpressionPtr left, right;
};
struct Logical {
  bool is_and;
  ExpressionPtr left, right;
};
enum class Relation {
  kEqual,
  kNotEqual,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kIn,
  kNotIn
};
struct Comparison {
  ExpressionPtr first;
  std::vector<std::pair<Relation, ExpressionPtr>> rest;  // a < b < c means a < b and b < c
};
struct Conditional {
  ExpressionPtr condition, then, otherwise;  // the last may be missing: undefined
};

struct Expression {
  int line;
  std::variant<Constant, Variable, ListLiteral, DictionaryLiteral, AttributeAccess, ItemAccess,
               SliceAccess, Call, FilterCall, TestCall, Not, Negation, Binary, Logical, Comparison,
               Conditional>
      node;
};

/// What `set` and `for` assign to: a name, an attribute of a namespace, or several of them.
struct Target {
  NameId name = -1;
  std::string attribute;         // not empty: that attribute of `name`
  std::vector<Target> elements;  // not empty: unpacks into these
};

struct Text {
  std::string text;
};
struct Output {
  ExpressionPtr value;
};
struct If {
  struct Branch {
    ExpressionPtr condition;
    Block body;
  };
  std::vector<Branch> branches;
  Block otherwise;
};
struct For {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr filter;  // may be missing
  Block body;
  Block otherwise;  // where nothing was iterated over
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  ExpressionPtr filters;  // may be missing; the innermost input is the block's text
  Block body;
};
struct Macro {
  struct Parameter {
    NameId name;
    std::string text;
    ExpressionPtr default_value;  // may be missing: undefined
  };
  NameId name;
  std::string text;
  std::vector<Parameter> parameters;
  Block body;
};
struct FilterBlock {
  ExpressionPtr filters;
  Block body;
};
struct Generation {  // marks what the model wrote; prints as it is
  Block body;
};
struct Break {};
struct Continue {};

struct Statement {
  int line;
  std::variant<Text, Output, If, For, Set, SetBlock, Macro, FilterBlock, Generation, Break,
               Continue>
      node;
};

struct Template {
  Block body;
  std::vector<std::string> names;  // by NameId
};

}  // namespace rigel::text::chat
