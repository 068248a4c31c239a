#pragma once

#include "text/tokenizer.h"
#include "worker/mailbox.h"
#include "worker/request.h"
#include "worker/service.h"
#include "worker/sleeper.h"
#include "worker/spsc_ring.h"

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

/// What one request got from one step. Of a token in the middle of a text this is all: the lines cross from core to core.
struct StepOutput {
  RequestId id{};
  std::int32_t token = -1;    // -1: none in this message
  std::int32_t details = -1;  // in StepMessage::details; -1: none
};

/// What comes with few outputs.
struct OutputDetails {
  std::int32_t first_logprob = 0;  // in StepMessage::logprobs: the token's own, then its rivals
  std::int32_t num_logprobs = 0;
  std::int32_t num_cached_tokens = -1;  // of the prompt; -1: as was said before
  std::int32_t first_value = 0;         // in StepMessage::values
  std::int32_t num_values = 0;
  std::int32_t ending = -1;  // in StepMessage::endings; -1: the request goes on
  bool shows_token = true;   // false: the token ended the request and is not part of its text
};

/// How a request ended.
struct RequestEnding {
  FinishReason reason{};
  std::string error;
  std::unique_ptr<PromptScores> scores;
};

/// All outputs of one step: the dispatcher is woken once a step, never once a token. A message's memory is used again.
struct StepMessage {
  std::vector<StepOutput> outputs;
  std::vector<OutputDetails> details;
  std::vector<TokenLogprob> logprobs;
  std::vector<OutputValue> values;
  std::vector<RequestEnding> endings;

  /// The details of one of `outputs`, made if there were none; valid until the next are made.
  [[nodiscard]] OutputDetails& details_of(StepOutput& output) {
    if (output.details < 0) {
      output.details = static_cast<std::int32_t>(details.size());
      details.emplace_back();
    }
    return details[static_cast<std::size_t>(output.details)];
  }
  void clear() {
    outputs.clear();
    details.clear();
    logprobs.clear();
    values.clear();
    endings.clear();
  }
};

/// What the dispatcher needs to know of a request before its first output.
struct OutputStream {
  RequestId id{};
  std::shared_ptr<OutputListener> listener;
  std::vector<std::string> stop;
  bool include_stop = false;
  bool skip_special = true;
  std::int32_t num_prompt_tokens = 0;
  std::int32_t min_tokens = 0;  // a stop string that these complete does not end the answer
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

  // The worker fills a message in place and posts it. Thread: worker.

  /// Makes room for steps of `num_outputs`, so that no message of a steady step grows. Before the first message.
  void reserve(std::size_t num_outputs);
  /// The message to be filled: empty, or what was put into it since the last post. Waits while the dispatcher is kMaxBehind
  /// steps behind; it never waits for the worker, so it catches up.
  [[nodiscard]] StepMessage& message() {
    if (!filling_) {
      await_place();
    }
    return messages_.back();
  }
  /// Hands the message over. False, and nothing happens, where there is none or an empty one.
  bool post();
  /// Waits until all messages but the last `most_behind` were delivered: what they met has been told to the worker by then.
  void await_delivery(std::uint64_t most_behind);

 private:
  static constexpr std::size_t kMaxBehind = 8;

  class Stream;
  struct Shutdown {};
  using Letter = std::variant<OutputStream, Shutdown>;

  void await_place();
  void run();
  [[nodiscard]] bool read_mail(std::vector<Letter>& letters);
  void deliver(StepMessage& message);
  void deliver(const StepOutput& output, StepMessage& message);

  const text::Tokenizer* tokenizer_;
  StopStringHandler on_stop_string_;
  Sleeper sleeper_;         // of the dispatcher thread
  Sleeper worker_sleeper_;  // of the worker, while every message is on its way
  Mailbox<Letter> mailbox_{sleeper_};
  SpscRing<StepMessage, kMaxBehind> messages_;
  bool filling_ = false;  // the ring's next place is the worker's message
  std::unordered_map<RequestId, std::unique_ptr<Stream>> streams_;
  std::thread thread_;
};

}  // namespace rigel
