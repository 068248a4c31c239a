#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rigel::text::chat {

struct Token {
  enum class Kind {
    kText,         // what stands between the tags
    kOutputBegin,  // {{
    kOutputEnd,
    kBlockBegin,  // {%
    kBlockEnd,
    kName,
    kString,  // `text` holds the characters meant, escapes resolved
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };

  Kind kind;
  std::string text;
  int line;  // from 1
};

/// Cuts a template into tokens as Jinja2 does with trim_blocks and lstrip_blocks: white space before a
/// block tag that begins a line and the line break after a block tag are dropped, `-` strips all white
/// space on its side, `+` none, comments vanish, and so does one line break at the template's end.
/// The last token is kEnd. Throws TextError, naming the line, on a character or an end it cannot read.
std::vector<Token> tokenize_template(std::string_view source);

}  // namespace rigel::text::chat
