#pragma once

#include "text/template/syntax.h"

#include <string_view>

namespace rigel::text::chat {

/// Reads a template. Throws TemplateError, naming the line, on a construct, filter, test or method that this
/// interpreter does not have. Thread: any.
Template parse_template(std::string_view source);

}  // namespace rigel::text::chat
