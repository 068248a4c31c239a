#pragma once

#include "text/text_error.h"

#include <string>

namespace rigel::text {

/// A template that cannot be read, or a conversation that it does not take.
class TemplateError : public TextError {
 public:
  /// What went wrong at `line` of the template.
  static TemplateError at(int line, const std::string& message) {
    return TemplateError("chat template, line " + std::to_string(line) + ": " + message, false);
  }

  /// The template's own raise_exception(message): `what()` is just that, as the user must read it.
  static TemplateError raised(const std::string& message) { return TemplateError(message, true); }

  bool is_raised_by_template() const { return is_raised_; }

 private:
  TemplateError(const std::string& message, bool is_raised)
      : TextError(message), is_raised_(is_raised) {}

  bool is_raised_;
};

}  // namespace rigel::text
