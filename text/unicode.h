#pragma once

#include <string>
#include <string_view>

/// Properties of code points, by the tables of text/generated/. Thread: any.
namespace rigel::text {

bool is_letter(char32_t code_point);  // categories L*
bool is_number(char32_t code_point);  // categories N*
bool is_space(char32_t code_point);   // property White_Space: what \s matches

/// What Python's str.isprintable says: no controls, formats, unassigned ones or separators but U+0020.
bool is_printable(char32_t code_point);

/// What Python's str.strip() takes off: white space and U+001C to U+001F.
bool is_python_space(char32_t code_point);

/// Full case mappings without context or language, as UTF-8. Ill-formed bytes pass unchanged.
std::string to_lower(std::string_view text);
std::string to_upper(std::string_view text);

}  // namespace rigel::text
