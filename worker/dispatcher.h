#pragma once

#include "text/tokenizer.h"
#include "worker/mailbox.h"
#include "worker/request.h"
#include "worker/service.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

namespace rigel {

/// What one request got from one step.
struct StepOutput {
  RequestId id{};
  std::int32_t token = -1;  // -1: none in this message
  bool shows_token = true;  // false: the token ended the request and is not part of its text
  std::vector<TokenLogprob> logprobs;
  std::optional<FinishReason> finish;
  std::string error;
  std::unique_ptr<PromptScores> scores;
};

/// All outputs of one step: the dispatcher is woken once a step, never once a token.
struct StepMessage {
  std::vector<StepOutput> outputs;
};

/// What the dispatcher needs to know of a request before its first output.
struct OutputStream {
  RequestId id{};
  std::shared_ptr<OutputListener> listener;
  std::vector<std::string> stop;
  bool include_stop = false;
  bool skip_special = true;
  std::int32_t num_prompt_tokens = 0;
};

/// Turns tokens into text on a thread of its own: detokenizes, finds stop strings, and calls the listeners.
class Dispatcher {
 public:
  /// Called on the dispatcher thread when a request's text has met a stop string with its token number `num_tokens`: the
  /// worker may end it.
  using StopStringHandler = std::function<void(RequestId id, std::int32_t num_tokens)>;

  /// `tokenizer` may be null: then there is no text, only tokens.
  Dispatcher(const text::Tokenizer* tokenizer, StopStringHandler on_stop_string);
  /// Delivers what was posted, then ends the thread.
  ~Dispatcher();

  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  /// Before the request's first output. Thread: any.
  void open(OutputStream stream);
  /// The outputs of a step. Thread: worker.
  void post(StepMessage message);

 private:
  class Stream;
  struct Shutdown {};
  using Letter = std::variant<OutputStream, StepMessage, Shutdown>;

  void run();
  bool handle(Letter& letter);
  void deliver(StepOutput& output);

  const text::Tokenizer* tokenizer_;
  StopStringHandler on_stop_string_;
  Mailbox<Letter> mailbox_;
  std::unordered_map<RequestId, std::unique_ptr<Stream>> streams_;
  std::thread thread_;
};

}  // namespace rigel
