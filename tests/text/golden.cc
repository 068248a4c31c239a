#include "tests/text/golden.h"

#include <nlohmann/json.hpp>

#include <fstream>
#include <iterator>
#include <sstream>

namespace rigel::text::testing {
namespace {

using Json = nlohmann::ordered_json;

std::string path_of(std::string_view tokenizer, std::string_view file) {
  return "tokenizers/" + std::string(tokenizer) + "/" + std::string(file);
}

std::vector<Json> read_lines(const std::string& path) {
  std::istringstream lines(read_data_file(path));
  std::vector<Json> values;
  for (std::string line; std::getline(lines, line);) {
    values.push_back(Json::parse(line));
  }
  return values;
}

}  // namespace

std::string read_data_file(const std::string& path) {
  std::ifstream file(std::string(RIGEL_TEST_DATA) + "/text/" + path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<TokenizeCase> read_tokenize_cases(std::string_view tokenizer) {
  std::vector<TokenizeCase> cases;
  for (const char* file : {"tokenize.jsonl", "disagree.jsonl"}) {
    for (const Json& line : read_lines(path_of(tokenizer, file))) {
      const std::string ids = line.contains("ids") ? "ids" : line.at("expected").get<std::string>();
      cases.push_back({line.at("kind"), line.at("text"), line.at("add_special"),
                       line.at("parse_special"), line.at(ids)});
    }
  }
  return cases;
}

std::vector<DetokenizeCase> read_detokenize_cases(std::string_view tokenizer) {
  std::vector<DetokenizeCase> cases;
  for (const Json& line : read_lines(path_of(tokenizer, "detokenize.jsonl"))) {
    cases.push_back({line.at("kind"), line.at("ids"), line.at("skip_special"), line.at("pieces"),
                     line.at("tail"), line.at("text")});
  }
  return cases;
}

std::vector<ChatCase> read_chat_cases() {
  std::vector<ChatCase> cases;
  for (const Json& line : read_lines("chat.jsonl")) {
    cases.push_back({line.at("template"), line.at("conversation"), line.dump(),
                     line.value("rendered", ""), line.value("error", ""),
                     line.value("error_message", "")});
  }
  return cases;
}

std::vector<TokenizeCase> read_llama_cpp_cases(std::string_view tokenizer) {
  const std::string base = "vocab/ggml-vocab-" + std::string(tokenizer) + ".gguf";
  const std::string texts = read_data_file(base + ".inp");
  std::istringstream ids_lines(read_data_file(base + ".out"));
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::vector<TokenizeCase> cases;
  std::size_t begin = 0;
  for (std::string line; std::getline(ids_lines, line);) {
    const std::size_t end = texts.find(separator, begin);
    std::istringstream numbers(line);
    cases.push_back({"llama.cpp",
                     texts.substr(begin, end - begin),
                     false,
                     false,
                     {std::istream_iterator<int32_t>(numbers), {}}});
    begin = end == std::string::npos ? texts.size() : end + separator.size();
  }
  return cases;
}

}  // namespace rigel::text::testing
