#pragma once

#include "server/text_codec.h"
#include "worker/request.h"

#include <optional>
#include <string>

namespace rigel::server {

/// `generate` on a terminal: streams answers to stdout and tells the rate on stderr.
class TerminalChat {
 public:
  /// `raw`: prompts are continued as they are; else the chat template makes a conversation of them.
  TerminalChat(const TextCodec& codec, InferenceService& service, SamplingParams sampling,
               bool raw);

  /// Answers one turn. Returns the exit code.
  int answer(const std::string& prompt);

  /// Each line of stdin is a turn, until it ends. Returns the exit code.
  int answer_lines();

 private:
  struct Turn {
    std::string role;
    std::string content;
  };

  [[nodiscard]] Prompt make_prompt(const std::string& prompt);

  const TextCodec& codec_;
  InferenceService& service_;
  const SamplingParams sampling_;
  const bool is_chat_;
  std::vector<Turn> turns_;
};

}  // namespace rigel::server
