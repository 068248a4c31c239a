#pragma once

#include "server/api/error.h"

#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rigel::server {

/// All lines of a file, or of stdin for "-", but empty ones at the end. Throws std::runtime_error naming the file.
[[nodiscard]] std::vector<std::string> read_json_lines(const std::string& file);

/// What is wrong with a line that holds nothing: it gets an answer like every other, so that answers keep their numbers.
[[nodiscard]] std::optional<ApiError> find_line_error(std::string_view line);

/// {"error": {"message", "type", "param"}}: what stands in the place of a bad line's answer.
[[nodiscard]] std::string error_line(const ApiError& error);

/// Writes one answer to stdout.
void print_line(std::string_view json);

/// Prints `answer(line)` for each line of a file, in order: an answer or an error. Returns the exit code. An exception
/// text::TextError of `answer` is that line's error.
int answer_each_line(const std::string& file,
                     const std::function<Parsed<std::string>(std::string_view line)>& answer);

}  // namespace rigel::server
