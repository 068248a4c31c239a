#include "text/template/parser.h"

#include "text/template/expression_parser.h"
#include "text/template/lexer.h"

#include <algorithm>

namespace rigel::text::chat {
namespace {

// Deeper nesting would overflow the stack of whoever walks the tree.
constexpr int kMaxOpenBlocks = 100;

class Parser {
 public:
  explicit Parser(std::string_view source)
      : tokens_(tokenize_template(source)), expressions_(tokens_) {}

  Template run() {
    Template result;
    result.body = parse_block({});
    result.names = expressions_.take_names();
    return result;
  }

 private:
  using Names = std::initializer_list<std::string_view>;

  /// Statements up to a block tag whose name is in `ends`; its name is the current token then. Without
  /// `ends`: up to the template's end.
  Block parse_block(Names ends) {
    if (++num_open_ > kMaxOpenBlocks) {
      tokens_.fail("blocks nest too deep");
    }
    Block block;
    while (true) {
      const int line = tokens_.line();
      if (tokens_.is(Token::Kind::kEnd)) {
        if (ends.size() > 0) {
          tokens_.fail("unexpected end of template, '" + std::string(*ends.begin()) +
                       "' is missing");
        }
        break;
      }
      if (tokens_.is(Token::Kind::kText)) {
        block.push_back({line, Text{tokens_.take().text}});
      } else if (tokens_.is(Token::Kind::kOutputBegin)) {
        tokens_.take();
        block.push_back({line, Output{expressions_.parse_tuple(/*allow_conditional=*/true)}});
        if (!tokens_.is(Token::Kind::kOutputEnd)) {
          tokens_.fail("expected '}}', got " + tokens_.describe());
        }
        tokens_.take();
      } else {
        tokens_.take();  // {%
        if (std::any_of(ends.begin(), ends.end(),
                        [this](auto end) { return tokens_.is_name(end); })) {
          break;
        }
        block.push_back(parse_statement());
      }
    }
    --num_open_;
    return block;
  }

  /// The body of a block that only `end` closes, from after its opening tag to after the closing one.
  Block parse_body(std::string_view end) {
    tokens_.expect_block_end();
    Block body = parse_block({end});
    tokens_.take();
    tokens_.expect_block_end();
    return body;
  }

  Statement parse_statement() {
    const int line = tokens_.line();
    const std::string name = tokens_.expect_any_name();
    if (name == "if") {
      return {line, parse_if()};
    }
    if (name == "for") {
      return {line, parse_for()};
    }
    if (name == "set") {
      return parse_set(line);
    }
    if (name == "macro") {
      return {line, parse_macro()};
    }
    if (name == "filter") {
      FilterBlock block;
      block.filters = expressions_.parse_filters();
      block.body = parse_body("endfilter");
      return {line, std::move(block)};
    }
    if (name == "generation") {
      return {line, Generation{parse_body("endgeneration")}};
    }
    if (name == "break" || name == "continue") {
      if (num_loops_ == 0) {
        throw TemplateError::at(line, "'" + name + "' outside of a loop");
      }
      tokens_.expect_block_end();
      return name == "break" ? Statement{line, Break{}} : Statement{line, Continue{}};
    }
    throw TemplateError::at(line, "unknown tag '" + name + "'");
  }

  If parse_if() {
    If statement;
    while (true) {
      If::Branch& branch = statement.branches.emplace_back();
      branch.condition = expressions_.parse_tuple(/*allow_conditional=*/false);
      tokens_.expect_block_end();
      branch.body = parse_block({"endif", "elif", "else"});
      const std::string end = tokens_.take().text;
      if (end == "elif") {
        continue;
      }
      if (end == "else") {
        statement.otherwise = parse_body("endif");
      } else {
        tokens_.expect_block_end();
      }
      return statement;
    }
  }

  For parse_for() {
    For loop;
    loop.target = expressions_.parse_targets();
    if (!tokens_.skip_name("in")) {
      tokens_.fail("expected 'in', got " + tokens_.describe());
    }
    loop.iterable = expressions_.parse_tuple(/*allow_conditional=*/false);
    if (tokens_.skip_name("if")) {
      loop.filter = expressions_.parse();
    }
    if (tokens_.is_name("recursive")) {
      tokens_.fail("recursive loops are not supported");
    }
    tokens_.expect_block_end();
    ++num_loops_;
    loop.body = parse_block({"endfor", "else"});
    --num_loops_;
    if (tokens_.take().text == "else") {
      loop.otherwise = parse_body("endfor");
    } else {
      tokens_.expect_block_end();
    }
    return loop;
  }

  Statement parse_set(int line) {
    Target target = expressions_.parse_targets();
    if (tokens_.skip_operator("=")) {
      Set set{std::move(target), expressions_.parse_tuple(/*allow_conditional=*/true)};
      tokens_.expect_block_end();
      return {line, std::move(set)};
    }
    SetBlock block;
    block.target = std::move(target);
    block.filters = expressions_.parse_piped_filters();
    block.body = parse_body("endset");
    return {line, std::move(block)};
  }

  Macro parse_macro() {
    Macro macro;
    macro.text = tokens_.expect_any_name();
    macro.name = expressions_.intern(macro.text);
    tokens_.expect_operator("(");
    while (!tokens_.is_operator(")")) {
      Macro::Parameter& parameter = macro.parameters.emplace_back();
      parameter.text = tokens_.expect_any_name();
      parameter.name = expressions_.intern(parameter.text);
      if (tokens_.skip_operator("=")) {
        parameter.default_value = expressions_.parse();
      }
      if (!tokens_.skip_operator(",")) {
        break;
      }
    }
    tokens_.expect_operator(")");
    const int num_loops_outside = std::exchange(num_loops_, 0);  // `break` does not leave a macro
    macro.body = parse_body("endmacro");
    num_loops_ = num_loops_outside;
    return macro;
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  int num_open_ = 0;
  int num_loops_ = 0;
};

}  // namespace

Template parse_template(std::string_view source) {
  return Parser(source).run();
}

}  // namespace rigel::text::chat
