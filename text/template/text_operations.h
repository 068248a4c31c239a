#pragma once

#include "text/value.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// What methods of texts and filters share. Texts are UTF-8, and characters are code points, as in Python.
namespace rigel::text::chat {

enum class Side { kLeft, kRight, kBoth };

/// Strips white space, or the characters of `set` if given.
std::string strip(std::string_view text, Side side, const std::optional<std::string>& set);

/// str.split and str.rsplit: at runs of white space without `separator`; at most `max_splits` times if >= 0.
ValueList split(std::string_view text, const std::optional<std::string>& separator,
                int64_t max_splits);
ValueList split_from_right(std::string_view text, const std::optional<std::string>& separator,
                           int64_t max_splits);

/// str.splitlines() without line ends.
ValueList split_lines(std::string_view text);

/// Replaces at most `max_count` times if >= 0. An empty `from` stands before every character and at the end.
std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t max_count);

/// HTML entities for the five characters that mean something in HTML.
std::string escape_html(std::string_view text);

std::string capitalize(std::string_view text);
std::string title_case(std::string_view text);

/// Indents all lines but the first (or that, too), and blank ones only if asked.
std::string indent(std::string_view text, std::string_view prefix, bool first, bool blank);

}  // namespace rigel::text::chat
