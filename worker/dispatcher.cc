#include "worker/dispatcher.h"

#include "text/detokenizer.h"
#include "text/stop_matcher.h"

#include <utility>

namespace rigel {

/// One request's way from tokens to text.
class Dispatcher::Stream {
 public:
  Stream(OutputStream stream, const text::Tokenizer* tokenizer)
      : stream_(std::move(stream)), stop_(stream_.stop, stream_.include_stop) {
    if (tokenizer != nullptr) {
      detokenizer_.emplace(*tokenizer, stream_.skip_special);
    }
  }

  [[nodiscard]] RequestId id() const { return stream_.id; }

  [[nodiscard]] std::int32_t num_tokens() const { return num_tokens_; }

  /// Passes `output` on to the listener. True when the request has ended here.
  bool deliver(const StepOutput& output, const StepMessage& message) {
    static constexpr OutputDetails kNoDetails;
    const OutputDetails& details = output.details >= 0
                                       ? message.details[static_cast<std::size_t>(output.details)]
                                       : kNoDetails;
    const RequestEnding* ending =
        details.ending >= 0 ? &message.endings[static_cast<std::size_t>(details.ending)] : nullptr;
    if (details.num_cached_tokens >= 0) {
      num_cached_tokens_ = details.num_cached_tokens;
    }
    text_.clear();
    num_tokens_ += output.token >= 0 ? 1 : 0;
    const bool stopped = details.shows_token && append_text(output.token);
    if (ending != nullptr && !stopped) {
      finish_text();
    }
    OutputDelta delta;
    delta.text = text_;
    if (output.token >= 0) {
      const auto logprobs = message.logprobs.begin() + details.first_logprob;
      token_.id = output.token;
      token_.logprobs.assign(logprobs, logprobs + details.num_logprobs);
      delta.tokens = {&token_, 1};
    }
    if (ending != nullptr) {
      delta.finish = ending->reason;
      delta.error = ending->error;
      delta.prompt_scores = ending->scores.get();
    }
    if (stopped) {
      delta.finish = FinishReason::kStop;
      delta.stop_string = stream_.stop[static_cast<std::size_t>(stop_.matched_stop())];
    }
    delta.values = std::span(message.values)
                       .subspan(static_cast<std::size_t>(details.first_value),
                                static_cast<std::size_t>(details.num_values));
    delta.num_prompt_tokens = stream_.num_prompt_tokens;
    delta.num_cached_tokens = num_cached_tokens_;
    stream_.listener->on_delta(delta);
    return delta.finish.has_value();
  }

 private:
  /// True when a stop string has matched.
  bool append_text(std::int32_t token) {
    if (token < 0 || !detokenizer_) {
      return false;
    }
    piece_.clear();
    detokenizer_->push(token, piece_);
    return find_stop();
  }

  /// True when a stop string has matched.
  bool find_stop() {
    if (num_tokens_ > stream_.min_tokens) {
      return stop_.push(piece_, text_);
    }
    stop_.pass(piece_, text_);
    return false;
  }

  void finish_text() {
    if (!detokenizer_) {
      return;
    }
    piece_.clear();
    detokenizer_->finish(piece_);
    if (!find_stop()) {
      stop_.flush(text_);
    }
  }

  OutputStream stream_;
  std::optional<text::Detokenizer> detokenizer_;
  text::StopMatcher stop_;
  std::int32_t num_tokens_ = 0;
  std::int32_t num_cached_tokens_ = 0;
  std::string piece_;  // what the latest token completed
  std::string text_;   // what of it may be shown
  GeneratedToken token_{};
};

Dispatcher::Dispatcher(const text::Tokenizer* tokenizer, StopStringHandler on_stop_string)
    : tokenizer_(tokenizer),
      on_stop_string_(std::move(on_stop_string)),
      thread_([this] { run(); }) {}

Dispatcher::~Dispatcher() {
  mailbox_.put(Shutdown{});
  thread_.join();
}

void Dispatcher::open(OutputStream stream) {
  mailbox_.put(std::move(stream));
}

void Dispatcher::reserve(std::size_t num_outputs) {
  for (StepMessage& message : messages_.slots()) {
    message.outputs.reserve(num_outputs);
    message.details.reserve(num_outputs);
  }
}

void Dispatcher::await_place() {
  worker_sleeper_.sleep_until([this] { return !messages_.full(); });
  filling_ = true;
}

bool Dispatcher::post() {
  if (!filling_ || messages_.back().outputs.empty()) {
    return false;
  }
  filling_ = false;
  messages_.publish();
  sleeper_.wake();
  return true;
}

void Dispatcher::await_delivery(std::uint64_t most_behind) {
  worker_sleeper_.sleep_until(
      [this, most_behind] { return messages_.num_pending() <= most_behind; });
}

void Dispatcher::run() {
  std::vector<Letter> letters;
  bool open = true;
  while (open) {
    sleeper_.sleep_until(
        [this] { return messages_.num_read() < messages_.num_filled() || !mailbox_.empty(); });
    // A request's stream is opened before it is submitted: whoever sees its output here finds its letter below.
    const std::uint64_t num_filled = messages_.num_filled();
    open = read_mail(letters);
    while (messages_.num_read() < (open ? num_filled : messages_.num_filled())) {
      deliver(messages_.front());
      messages_.front().clear();
      messages_.pop();
      worker_sleeper_.wake();
    }
  }
}

/// False where the mail says that this is the end.
bool Dispatcher::read_mail(std::vector<Letter>& letters) {
  bool open = true;
  mailbox_.take(letters);
  for (Letter& letter : letters) {
    if (auto* opening = std::get_if<OutputStream>(&letter)) {
      auto stream = std::make_unique<Stream>(std::move(*opening), tokenizer_);
      const RequestId id = stream->id();
      streams_.emplace(id, std::move(stream));
    } else {
      open = false;
    }
  }
  return open;
}

void Dispatcher::deliver(StepMessage& message) {
  for (const StepOutput& output : message.outputs) {
    deliver(output, message);
  }
}

void Dispatcher::deliver(const StepOutput& output, StepMessage& message) {
  const auto entry = streams_.find(output.id);
  if (entry == streams_.end()) {
    return;  // ended by a stop string while later steps were on their way
  }
  if (!entry->second->deliver(output, message)) {
    return;
  }
  const std::int32_t num_tokens = entry->second->num_tokens();
  streams_.erase(entry);
  if (output.details < 0 || message.details[static_cast<std::size_t>(output.details)].ending < 0) {
    on_stop_string_(output.id, num_tokens);
  }
}

}  // namespace rigel
