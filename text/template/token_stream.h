#pragma once

#include "text/template/lexer.h"
#include "text/template/template_error.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rigel::text::chat {

/// The tokens of a template with a place in them. Thread: one owner.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  int line() const { return current().line; }
  bool is(Token::Kind kind) const { return current().kind == kind; }
  bool is_name(std::string_view name) const {
    return is(Token::Kind::kName) && current().text == name;
  }
  bool is_operator(std::string_view op) const {
    return is(Token::Kind::kOperator) && current().text == op;
  }

  /// Returns the current token and moves on; stays at kEnd.
  Token take() {
    Token token = current();
    at_ += at_ + 1 < tokens_.size() ? 1 : 0;
    return token;
  }

  /// Moves over `op` or the name `name` if it is here.
  bool skip_operator(std::string_view op) { return skip_if(is_operator(op)); }
  bool skip_name(std::string_view name) { return skip_if(is_name(name)); }

  void expect_operator(std::string_view op) {
    if (!skip_operator(op)) {
      fail("expected '" + std::string(op) + "', got " + describe());
    }
  }

  void expect_block_end() {
    if (!is(Token::Kind::kBlockEnd)) {
      fail("expected '%}', got " + describe());
    }
    take();
  }

  std::string expect_any_name() {
    if (!is(Token::Kind::kName)) {
      fail("expected a name, got " + describe());
    }
    return take().text;
  }

  std::string describe() const {
    switch (current().kind) {
      case Token::Kind::kEnd:
        return "the end of the template";
      case Token::Kind::kBlockEnd:
        return "'%}'";
      case Token::Kind::kOutputEnd:
        return "'}}'";
      default:
        return "'" + current().text + "'";
    }
  }

  [[noreturn]] void fail(const std::string& message) const {
    throw TemplateError::at(line(), message);
  }

 private:
  bool skip_if(bool is_here) {
    at_ += is_here ? 1 : 0;
    return is_here;
  }

  std::vector<Token> tokens_;  // the last is kEnd
  std::size_t at_ = 0;
};

}  // namespace rigel::text::chat
