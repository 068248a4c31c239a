#pragma once

#include "text/template/syntax.h"
#include "text/template/token_stream.h"

#include <unordered_map>

namespace rigel::text::chat {

/// Reads expressions: Jinja2's grammar and precedences. Throws TemplateError, naming the line, on anything
/// else and on filters, tests and methods that do not exist. Thread: one owner.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  /// An expression, with `a if b else c`.
  ExpressionPtr parse();

  /// Expressions with commas between them: a tuple, or the only one without a comma.
  /// `allow_conditional` is off where `if` means something else.
  ExpressionPtr parse_tuple(bool allow_conditional);

  /// What stands between the pipes of `{% filter a | b %}`: filters of a missing input.
  ExpressionPtr parse_filters();

  /// ... | filter | filter, or nothing: the same for `{% set x | a %}`.
  ExpressionPtr parse_piped_filters();

  /// a, b or (a, b): what `for` assigns to.
  Target parse_targets();

  NameId intern(const std::string& name);
  std::vector<std::string> take_names() { return std::move(names_); }

 private:
  class Nesting;

  template <typename Node>
  ExpressionPtr make(int line, Node node) {
    count_node();
    return std::make_unique<Expression>(Expression{line, std::move(node)});
  }
  void count_node();

  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_name();
  ExpressionPtr parse_number();
  ExpressionPtr parse_parenthesized();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dictionary();
  ExpressionPtr parse_postfix(ExpressionPtr operand);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr operand);
  ExpressionPtr parse_attribute(ExpressionPtr object);
  ExpressionPtr parse_subscript(ExpressionPtr object);
  ExpressionPtr parse_call(ExpressionPtr callee);
  ExpressionPtr parse_filter(ExpressionPtr input);
  ExpressionPtr parse_test(ExpressionPtr input);
  ArgumentList parse_arguments();
  Target parse_target();
  std::optional<Relation> take_relation();
  void check_named_functions(const std::string& filter, const ArgumentList& arguments) const;

  TokenStream& tokens_;
  int num_open_ = 0;
  int num_nodes_ = 0;  // of the outermost expression being read
  std::vector<std::string> names_;
  std::unordered_map<std::string, NameId> ids_;
};

}  // namespace rigel::text::chat
