#include "server/commands/terminal_chat.h"

#include "server/api/json_writer.h"
#include "server/api/prepare.h"
#include "server/commands/commands.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <iostream>
#include <mutex>

namespace rigel::server {
namespace {

using std::chrono::steady_clock;

/// Hands text from the dispatcher thread to the one that prints: a slow terminal must not hold up the service.
class TextQueue final : public OutputListener {
 public:
  void on_delta(const OutputDelta& delta) override {
    const std::lock_guard lock(mutex_);
    if (!delta.tokens.empty() && num_tokens_ == 0) {
      first_token_ = steady_clock::now();
    }
    num_tokens_ += delta.tokens.size();
    waiting_ += delta.text;
    if (delta.finish) {
      finish_ = delta.finish;
      error_ = delta.error;
      end_ = steady_clock::now();
    }
    changed_.notify_one();
  }

  /// Prints until the answer's end. Returns all of the text.
  std::string print() {
    std::string whole;
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !waiting_.empty() || finish_; });
      const std::string text = std::exchange(waiting_, {});
      const bool is_last = finish_.has_value();
      lock.unlock();
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
      whole += text;
      if (is_last) {
        return whole;
      }
      lock.lock();
    }
  }

  /// After print().
  [[nodiscard]] bool has_failed() const { return finish_ == FinishReason::kError; }
  [[nodiscard]] const std::string& error() const { return error_; }

  /// "42 tokens, first after 120 ms, then 35.2 tokens/s".
  [[nodiscard]] std::string rate() const {
    if (num_tokens_ == 0) {
      return "no tokens";
    }
    const double first_ms =
        std::chrono::duration<double, std::milli>(first_token_ - begun_).count();
    std::string text =
        fmt::format("{} tokens, time to first token {:.0f} ms", num_tokens_, first_ms);
    const double seconds = std::chrono::duration<double>(end_ - first_token_).count();
    if (num_tokens_ > 1 && seconds > 0) {
      text += fmt::format(", then {:.1f} tokens/s", static_cast<double>(num_tokens_ - 1) / seconds);
    }
    return text;
  }

 private:
  const steady_clock::time_point begun_ = steady_clock::now();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string waiting_;
  std::size_t num_tokens_ = 0;
  steady_clock::time_point first_token_;
  steady_clock::time_point end_;
  std::optional<FinishReason> finish_;
  std::string error_;
};

}  // namespace

TerminalChat::TerminalChat(const TextCodec& codec, InferenceService& service,
                           SamplingParams sampling, bool raw)
    : codec_(codec),
      service_(service),
      sampling_(std::move(sampling)),
      is_chat_(!raw && codec.has_chat_template()) {}

Prompt TerminalChat::make_prompt(const std::string& prompt) {
  if (!is_chat_) {
    return prompt;
  }
  turns_.push_back({"user", prompt});
  JsonWriter json;
  json.begin_array();
  for (const Turn& turn : turns_) {
    json.begin_object().field("role", turn.role).field("content", turn.content).end_object();
  }
  json.end_array();
  ChatPrompt chat;
  chat.messages_json = json.take();
  return chat;
}

int TerminalChat::answer(const std::string& prompt) {
  Parsed<std::vector<std::int32_t>> ids =
      prompt_ids(make_prompt(prompt), /*add_special=*/true, codec_, "prompt");
  if (!ids.ok()) {
    fmt::print(stderr, "rigel: {}\n", ids.error().message);
    return kFailed;
  }
  GenerationRequest request;
  request.sampling = sampling_;
  request.prompt = std::move(ids.value());
  const int room = service_.limits().max_model_len - static_cast<int>(request.prompt.size());
  request.sampling.max_tokens = std::clamp(room, 1, sampling_.max_tokens);
  const auto queue = std::make_shared<TextQueue>();
  const SubmitResult result = service_.submit(std::move(request), queue);
  if (result.error) {
    fmt::print(stderr, "rigel: {}\n", result.error->message);
    return kFailed;
  }
  std::string text = queue->print();
  fmt::print("\n");
  std::fflush(stdout);
  if (queue->has_failed()) {
    fmt::print(stderr, "rigel: {}\n", queue->error());
    return kFailed;
  }
  fmt::print(stderr, "{}\n", queue->rate());
  if (is_chat_) {
    turns_.push_back({"assistant", std::move(text)});
  }
  return kDone;
}

int TerminalChat::answer_lines() {
  const bool is_terminal = ::isatty(STDIN_FILENO) == 1;
  int exit_code = kDone;
  std::string line;
  for (;;) {
    if (is_terminal) {
      fmt::print(stderr, "> ");
    }
    if (!std::getline(std::cin, line)) {
      return exit_code;
    }
    if (!line.empty()) {
      exit_code = std::max(exit_code, answer(line));
    }
  }
}

}  // namespace rigel::server
