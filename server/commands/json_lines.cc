#include "server/commands/json_lines.h"

#include "server/api/json_writer.h"
#include "server/commands/commands.h"
#include "text/text_error.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <stdexcept>

namespace rigel::server {
namespace {

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

std::vector<std::string> read_lines(std::istream& in, const std::string& file) {
  std::vector<std::string> lines;
  std::string line;
  while (std::getline(in, line)) {
    lines.push_back(std::move(line));
  }
  if (in.bad()) {
    throw std::runtime_error(fmt::format("--jsonl {}: cannot be read", file));
  }
  while (!lines.empty() && is_blank(lines.back())) {
    lines.pop_back();
  }
  return lines;
}

}  // namespace

std::vector<std::string> read_json_lines(const std::string& file) {
  if (file == "-") {
    return read_lines(std::cin, file);
  }
  if (std::filesystem::is_directory(file)) {
    throw std::runtime_error(fmt::format("--jsonl {}: is a directory", file));
  }
  std::ifstream in(file);
  if (!in) {
    throw std::runtime_error(fmt::format("--jsonl {}: {}", file, std::strerror(errno)));
  }
  return read_lines(in, file);
}

std::optional<ApiError> find_line_error(std::string_view line) {
  return is_blank(line) ? std::optional(ApiError{.message = "the line is empty"}) : std::nullopt;
}

std::string error_line(const ApiError& error) {
  JsonWriter json;
  json.begin_object().key("error").begin_object();
  json.field("message", error.message).field("type", error_type(error.status)).key("param");
  error.param.empty() ? json.value(nullptr) : json.value(error.param);
  json.end_object().end_object();
  return json.take();
}

void print_line(std::string_view json) {
  fmt::print("{}\n", json);
  std::fflush(stdout);
}

int answer_each_line(const std::string& file,
                     const std::function<Parsed<std::string>(std::string_view line)>& answer) {
  int exit_code = kDone;
  for (const std::string& line : read_json_lines(file)) {
    Parsed<std::string> result = [&]() -> Parsed<std::string> {
      if (std::optional<ApiError> error = find_line_error(line)) {
        return std::move(*error);
      }
      try {
        return answer(line);
      } catch (const text::TextError& problem) {
        return ApiError{.message = problem.what()};
      }
    }();
    if (!result.ok()) {
      exit_code = kFailed;
    }
    print_line(result.ok() ? result.value() : error_line(result.error()));
  }
  return exit_code;
}

}  // namespace rigel::server
