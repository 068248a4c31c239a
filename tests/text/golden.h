#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// The golden data of tests/data/text, read. The only file of these tests that knows a JSON library.
namespace rigel::text::testing {

struct TokenizeCase {
  std::string kind;
  std::string text;
  bool add_special;
  bool parse_special;
  std::vector<int32_t> ids;
};

struct DetokenizeCase {
  std::string kind;
  std::vector<int32_t> ids;
  bool skip_special;
  std::vector<std::string> pieces;
  std::string tail;
  std::string text;
};

struct ChatCase {
  std::string template_file;
  std::string conversation;
  std::string
      input;  // a JSON object: messages, tools, add_generation_prompt, kwargs, bos_token, eos_token
  std::string rendered;
  std::string error;  // empty: must render
  std::string error_message;
};

/// Cases of tokenizers/`tokenizer`/tokenize.jsonl, then those of disagree.jsonl with the expected ids.
std::vector<TokenizeCase> read_tokenize_cases(std::string_view tokenizer);
std::vector<DetokenizeCase> read_detokenize_cases(std::string_view tokenizer);
std::vector<ChatCase> read_chat_cases();

/// llama.cpp's own list: texts and ids, no BOS, special tokens not parsed.
std::vector<TokenizeCase> read_llama_cpp_cases(std::string_view tokenizer);

/// The whole file at tests/data/text/`path`; empty if there is none.
std::string read_data_file(const std::string& path);

}  // namespace rigel::text::testing
