#include "text/template/expression_parser.h"

#include "text/template/filters.h"
#include "text/template/methods.h"
#include "text/template/value_tests.h"

#include <algorithm>
#include <charconv>

namespace rigel::text::chat {
namespace {

// Deeper nesting would overflow the stack of whoever walks the tree. A chain of operators nests, too, and its
// depth is at most its number of nodes.
constexpr int kMaxOpen = 100;
constexpr int kMaxNodes = 5000;

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

/// Counts how deep expressions nest while one is open.
class ExpressionParser::Nesting {
 public:
  explicit Nesting(ExpressionParser& parser) : parser_(parser) {
    if (parser_.num_open_ == 0) {
      parser_.num_nodes_ = 0;
    }
    if (++parser_.num_open_ > kMaxOpen) {
      parser_.tokens_.fail("expressions nest too deep");
    }
  }
  ~Nesting() { --parser_.num_open_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  ExpressionParser& parser_;
};

void ExpressionParser::count_node() {
  if (++num_nodes_ > kMaxNodes) {
    tokens_.fail("an expression is too long");
  }
}

NameId ExpressionParser::intern(const std::string& name) {
  const auto [place, is_new] = ids_.emplace(name, static_cast<NameId>(names_.size()));
  if (is_new) {
    names_.push_back(name);
  }
  return place->second;
}

ExpressionPtr ExpressionParser::parse() {
  const Nesting nesting(*this);
  const int line = tokens_.line();
  ExpressionPtr value = parse_or();
  while (tokens_.skip_name("if")) {
    ExpressionPtr condition = parse_or();
    ExpressionPtr otherwise = tokens_.skip_name("else") ? parse() : nullptr;
    value = make(line, Conditional{std::move(condition), std::move(value), std::move(otherwise)});
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_tuple(bool allow_conditional) {
  const int line = tokens_.line();
  std::vector<ExpressionPtr> items;
  bool has_comma = false;
  while (true) {
    items.push_back(allow_conditional ? parse() : parse_or());
    if (!tokens_.skip_operator(",")) {
      break;
    }
    has_comma = true;
    const bool is_over = tokens_.is(Token::Kind::kOutputEnd) ||
                         tokens_.is(Token::Kind::kBlockEnd) || tokens_.is_operator(")");
    if (is_over) {
      break;
    }
  }
  if (!has_comma) {
    return std::move(items.front());
  }
  return make(line, ListLiteral{std::move(items), /*is_tuple=*/true});
}

ExpressionPtr ExpressionParser::parse_or() {
  const int line = tokens_.line();
  ExpressionPtr left = parse_and();
  while (tokens_.skip_name("or")) {
    left = make(line, Logical{/*is_and=*/false, std::move(left), parse_and()});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  const int line = tokens_.line();
  ExpressionPtr left = parse_not();
  while (tokens_.skip_name("and")) {
    left = make(line, Logical{/*is_and=*/true, std::move(left), parse_not()});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  const Nesting nesting(*this);
  const int line = tokens_.line();
  if (tokens_.skip_name("not")) {
    return make(line, Not{parse_not()});
  }
  return parse_comparison();
}

std::optional<Relation> ExpressionParser::take_relation() {
  constexpr std::pair<std::string_view, Relation> kRelations[] = {
      {"==", Relation::kEqual},  {"!=", Relation::kNotEqual},
      {"<", Relation::kLess},    {"<=", Relation::kLessOrEqual},
      {">", Relation::kGreater}, {">=", Relation::kGreaterOrEqual}};
  for (const auto& [op, relation] : kRelations) {
    if (tokens_.skip_operator(op)) {
      return relation;
    }
  }
  if (tokens_.skip_name("in")) {
    return Relation::kIn;
  }
  const bool is_not_in = tokens_.is_name("not") && tokens_.next().kind == Token::Kind::kName &&
                         tokens_.next().text == "in";
  if (is_not_in) {
    tokens_.take();
    tokens_.take();
    return Relation::kNotIn;
  }
  return std::nullopt;
}

ExpressionPtr ExpressionParser::parse_comparison() {
  const int line = tokens_.line();
  ExpressionPtr first = parse_sum();
  std::vector<std::pair<Relation, ExpressionPtr>> rest;
  while (const std::optional<Relation> relation = take_relation()) {
    rest.emplace_back(*relation, parse_sum());
  }
  return rest.empty() ? std::move(first)
                      : make(line, Comparison{std::move(first), std::move(rest)});
}

ExpressionPtr ExpressionParser::parse_sum() {
  const int line = tokens_.line();
  ExpressionPtr left = parse_concatenation();
  while (tokens_.is_operator("+") || tokens_.is_operator("-")) {
    const bool is_sum = tokens_.take().text == "+";
    left = make(line, Binary{is_sum ? BinaryOperator::kAdd : BinaryOperator::kSubtract,
                             std::move(left), parse_concatenation()});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_concatenation() {
  const int line = tokens_.line();
  ExpressionPtr left = parse_product();
  while (tokens_.skip_operator("~")) {
    left = make(line, Binary{BinaryOperator::kConcatenate, std::move(left), parse_product()});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_product() {
  constexpr std::pair<std::string_view, BinaryOperator> kOperators[] = {
      {"*", BinaryOperator::kMultiply},
      {"/", BinaryOperator::kDivide},
      {"//", BinaryOperator::kFloorDivide},
      {"%", BinaryOperator::kModulo}};
  const int line = tokens_.line();
  ExpressionPtr left = parse_power();
  for (bool is_found = true; is_found;) {
    is_found = false;
    for (const auto& [text, op] : kOperators) {
      if (tokens_.skip_operator(text)) {
        left = make(line, Binary{op, std::move(left), parse_power()});
        is_found = true;
      }
    }
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_power() {
  const int line = tokens_.line();
  ExpressionPtr left = parse_unary(/*with_filters=*/true);
  while (tokens_.skip_operator("**")) {
    left = make(
        line, Binary{BinaryOperator::kPower, std::move(left), parse_unary(/*with_filters=*/true)});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  const Nesting nesting(*this);
  const int line = tokens_.line();
  ExpressionPtr value;
  if (tokens_.is_operator("-") || tokens_.is_operator("+")) {
    const bool is_plus = tokens_.take().text == "+";
    value = make(line, Negation{parse_unary(/*with_filters=*/false), is_plus});
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  return with_filters ? parse_filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::parse_primary() {
  const int line = tokens_.line();
  switch (tokens_.current().kind) {
    case Token::Kind::kName:
      return parse_name();
    case Token::Kind::kInteger:
    case Token::Kind::kFloat:
      return parse_number();
    case Token::Kind::kString: {
      std::string text;
      while (tokens_.is(Token::Kind::kString)) {
        text += tokens_.take().text;
      }
      return make(line, Constant{Value::string(std::move(text))});
    }
    default:
      break;
  }
  if (tokens_.is_operator("(")) {
    return parse_parenthesized();
  }
  if (tokens_.is_operator("[")) {
    return parse_list();
  }
  if (tokens_.is_operator("{")) {
    return parse_dictionary();
  }
  tokens_.fail("expected an expression, got " + tokens_.describe());
}

ExpressionPtr ExpressionParser::parse_name() {
  const int line = tokens_.line();
  const std::string name = tokens_.take().text;
  if (name == "true" || name == "True") {
    return make(line, Constant{Value::boolean(true)});
  }
  if (name == "false" || name == "False") {
    return make(line, Constant{Value::boolean(false)});
  }
  if (name == "none" || name == "None") {
    return make(line, Constant{Value::none()});
  }
  return make(line, Variable{intern(name), name});
}

ExpressionPtr ExpressionParser::parse_number() {
  const int line = tokens_.line();
  const Token token = tokens_.take();
  const char* end = token.text.data() + token.text.size();
  if (token.kind == Token::Kind::kFloat) {
    double number = 0;
    if (std::from_chars(token.text.data(), end, number).ec != std::errc()) {
      throw TemplateError::at(line, "the number " + token.text + " is out of range");
    }
    return make(line, Constant{Value::real(number)});
  }
  int64_t number = 0;
  if (std::from_chars(token.text.data(), end, number).ec != std::errc()) {
    throw TemplateError::at(line, "the number " + token.text + " is out of range");
  }
  return make(line, Constant{Value::integer(number)});
}

ExpressionPtr ExpressionParser::parse_parenthesized() {
  const int line = tokens_.line();
  tokens_.expect_operator("(");
  if (tokens_.skip_operator(")")) {
    return make(line, ListLiteral{{}, /*is_tuple=*/true});
  }
  ExpressionPtr value = parse_tuple(/*allow_conditional=*/true);
  tokens_.expect_operator(")");
  return value;
}

ExpressionPtr ExpressionParser::parse_list() {
  const int line = tokens_.line();
  tokens_.expect_operator("[");
  std::vector<ExpressionPtr> items;
  while (!tokens_.is_operator("]")) {
    items.push_back(parse());
    if (!tokens_.skip_operator(",")) {
      break;
    }
  }
  tokens_.expect_operator("]");
  return make(line, ListLiteral{std::move(items), /*is_tuple=*/false});
}

ExpressionPtr ExpressionParser::parse_dictionary() {
  const int line = tokens_.line();
  tokens_.expect_operator("{");
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
  while (!tokens_.is_operator("}")) {
    ExpressionPtr key = parse();
    tokens_.expect_operator(":");
    entries.emplace_back(std::move(key), parse());
    if (!tokens_.skip_operator(",")) {
      break;
    }
  }
  tokens_.expect_operator("}");
  return make(line, DictionaryLiteral{std::move(entries)});
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr operand) {
  while (true) {
    if (tokens_.is_operator(".")) {
      operand = parse_attribute(std::move(operand));
    } else if (tokens_.is_operator("[")) {
      operand = parse_subscript(std::move(operand));
    } else if (tokens_.is_operator("(")) {
      operand = parse_call(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters_and_tests(ExpressionPtr operand) {
  while (true) {
    if (tokens_.skip_operator("|")) {
      operand = parse_filter(std::move(operand));
    } else if (tokens_.skip_name("is")) {
      operand = parse_test(std::move(operand));
    } else if (tokens_.is_operator("(")) {
      operand = parse_call(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExpressionPtr ExpressionParser::parse_attribute(ExpressionPtr object) {
  const int line = tokens_.line();
  tokens_.expect_operator(".");
  if (tokens_.is(Token::Kind::kInteger)) {
    return make(line, ItemAccess{std::move(object), parse_number()});
  }
  return make(line, AttributeAccess{std::move(object), tokens_.expect_any_name()});
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr object) {
  const int line = tokens_.line();
  tokens_.expect_operator("[");
  ExpressionPtr parts[3];
  int num_colons = 0;
  while (!tokens_.is_operator("]")) {
    if (num_colons < 2 && tokens_.skip_operator(":")) {
      ++num_colons;
    } else if (parts[num_colons] == nullptr) {
      parts[num_colons] = parse();
    } else {
      break;
    }
  }
  tokens_.expect_operator("]");
  if (num_colons > 0) {
    return make(line, SliceAccess{std::move(object), std::move(parts[0]), std::move(parts[1]),
                                  std::move(parts[2])});
  }
  if (parts[0] == nullptr) {
    tokens_.fail("expected an index between '[' and ']'");
  }
  return make(line, ItemAccess{std::move(object), std::move(parts[0])});
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr callee) {
  const int line = tokens_.line();
  // Only methods of this interpreter's values can be called by attribute: others fail now, not at a user's message.
  const auto* attribute = std::get_if<AttributeAccess>(&callee->node);
  if (attribute != nullptr && !is_method_name(attribute->name)) {
    tokens_.fail("unknown method '" + attribute->name + "'");
  }
  return make(line, Call{std::move(callee), parse_arguments()});
}

ArgumentList ExpressionParser::parse_arguments() {
  ArgumentList arguments;
  tokens_.expect_operator("(");
  while (!tokens_.is_operator(")")) {
    const bool is_keyword = tokens_.is(Token::Kind::kName) &&
                            tokens_.next().kind == Token::Kind::kOperator &&
                            tokens_.next().text == "=";
    if (is_keyword) {
      std::string name = tokens_.take().text;
      tokens_.take();
      arguments.keywords.emplace_back(std::move(name), parse());
    } else if (!arguments.keywords.empty()) {
      tokens_.fail("an argument without a name follows one with a name");
    } else {
      arguments.positional.push_back(parse());
    }
    if (!tokens_.skip_operator(",")) {
      break;
    }
  }
  tokens_.expect_operator(")");
  return arguments;
}

ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr input) {
  const int line = tokens_.line();
  const std::string name = tokens_.expect_any_name();
  const FilterFunction function = find_filter(name);
  if (function == nullptr) {
    tokens_.fail("unknown filter '" + name + "'");
  }
  ArgumentList arguments = tokens_.is_operator("(") ? parse_arguments() : ArgumentList{};
  check_named_functions(name, arguments);
  return make(line, FilterCall{std::move(input), function, std::move(arguments)});
}

/// map, select and the like name a filter or test in an argument: an unknown one fails here, too.
void ExpressionParser::check_named_functions(const std::string& filter,
                                             const ArgumentList& arguments) const {
  const bool by_attribute = is_one_of(filter, {"selectattr", "rejectattr"});
  const bool is_map = filter == "map";
  if (!by_attribute && !is_map && !is_one_of(filter, {"select", "reject"})) {
    return;
  }
  const std::size_t place = by_attribute ? 1 : 0;
  if (arguments.positional.size() <= place) {
    return;
  }
  const auto* constant = std::get_if<Constant>(&arguments.positional[place]->node);
  if (constant == nullptr || !constant->value.is_string()) {
    return;
  }
  const std::string& name = constant->value.as_string();
  if (is_map ? find_filter(name) == nullptr : find_test(name) == nullptr) {
    tokens_.fail(std::string(is_map ? "unknown filter '" : "unknown test '") + name + "'");
  }
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr input) {
  const int line = tokens_.line();
  const bool is_negated = tokens_.skip_name("not");
  const std::string name = tokens_.expect_any_name();
  const TestFunction function = find_test(name);
  if (function == nullptr) {
    tokens_.fail("unknown test '" + name + "'");
  }
  ArgumentList arguments;
  const bool begins_argument =
      (tokens_.is(Token::Kind::kName) &&
       !is_one_of(tokens_.current().text, {"else", "or", "and", "is", "if", "in", "not"})) ||
      tokens_.is(Token::Kind::kString) || tokens_.is(Token::Kind::kInteger) ||
      tokens_.is(Token::Kind::kFloat) || tokens_.is_operator("[") || tokens_.is_operator("{");
  if (tokens_.is_operator("(")) {
    arguments = parse_arguments();
  } else if (begins_argument) {
    arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  ExpressionPtr test = make(line, TestCall{std::move(input), function, std::move(arguments)});
  return is_negated ? make(line, Not{std::move(test)}) : std::move(test);
}

ExpressionPtr ExpressionParser::parse_filters() {
  ExpressionPtr filters = parse_filter(nullptr);
  while (tokens_.skip_operator("|")) {
    filters = parse_filter(std::move(filters));
  }
  return filters;
}

ExpressionPtr ExpressionParser::parse_piped_filters() {
  return tokens_.skip_operator("|") ? parse_filters() : nullptr;
}

Target ExpressionParser::parse_target() {
  const Nesting nesting(*this);
  if (tokens_.skip_operator("(")) {
    Target target = parse_targets();
    tokens_.expect_operator(")");
    return target;
  }
  Target target;
  const std::string name = tokens_.expect_any_name();
  if (is_one_of(name, {"true", "false", "none", "True", "False", "None"})) {
    tokens_.fail("cannot assign to '" + name + "'");
  }
  target.name = intern(name);
  if (tokens_.skip_operator(".")) {
    target.attribute = tokens_.expect_any_name();
  }
  return target;
}

Target ExpressionParser::parse_targets() {
  Target first = parse_target();
  if (!tokens_.is_operator(",")) {
    return first;
  }
  Target all;
  all.elements.push_back(std::move(first));
  while (tokens_.skip_operator(",")) {
    if (!tokens_.is(Token::Kind::kName) && !tokens_.is_operator("(")) {
      break;
    }
    all.elements.push_back(parse_target());
  }
  return all;
}

}  // namespace rigel::text::chat
