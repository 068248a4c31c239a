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
  bool deliver(StepOutput& output) {
    text_.clear();
    num_tokens_ += output.token >= 0 ? 1 : 0;
    const bool stopped = append_text(output);
    if (output.finish && !stopped) {
      finish_text();
    }
    OutputDelta delta;
    delta.text = text_;
    GeneratedToken token{output.token, std::move(output.logprobs)};
    if (output.token >= 0) {
      delta.tokens = {&token, 1};
    }
    delta.finish = stopped ? FinishReason::kStop : output.finish;
    if (stopped) {
      delta.stop_string = stream_.stop[static_cast<std::size_t>(stop_.matched_stop())];
    }
    delta.error = output.error;
    delta.prompt_scores = output.scores.get();
    delta.num_prompt_tokens = stream_.num_prompt_tokens;
    stream_.listener->on_delta(delta);
    return delta.finish.has_value();
  }

 private:
  /// True when a stop string has matched.
  bool append_text(const StepOutput& output) {
    if (output.token < 0 || !output.shows_token || !detokenizer_) {
      return false;
    }
    piece_.clear();
    detokenizer_->push(output.token, piece_);
    return stop_.push(piece_, text_);
  }

  void finish_text() {
    if (!detokenizer_) {
      return;
    }
    piece_.clear();
    detokenizer_->finish(piece_);
    if (!stop_.push(piece_, text_)) {
      stop_.flush(text_);
    }
  }

  OutputStream stream_;
  std::optional<text::Detokenizer> detokenizer_;
  text::StopMatcher stop_;
  std::int32_t num_tokens_ = 0;
  std::string piece_;  // what the latest token completed
  std::string text_;   // what of it may be shown
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

void Dispatcher::post(StepMessage message) {
  mailbox_.put(std::move(message));
}

void Dispatcher::run() {
  std::vector<Letter> letters;
  bool open = true;
  while (open) {
    mailbox_.wait_and_take(letters);
    for (Letter& letter : letters) {
      open = handle(letter) && open;
    }
  }
}

bool Dispatcher::handle(Letter& letter) {
  if (auto* opening = std::get_if<OutputStream>(&letter)) {
    auto stream = std::make_unique<Stream>(std::move(*opening), tokenizer_);
    const RequestId id = stream->id();
    streams_.emplace(id, std::move(stream));
    return true;
  }
  if (auto* message = std::get_if<StepMessage>(&letter)) {
    for (StepOutput& output : message->outputs) {
      deliver(output);
    }
    return true;
  }
  return false;
}

void Dispatcher::deliver(StepOutput& output) {
  const auto entry = streams_.find(output.id);
  if (entry == streams_.end()) {
    return;  // ended by a stop string while later steps were on their way
  }
  if (!entry->second->deliver(output)) {
    return;
  }
  const std::int32_t num_tokens = entry->second->num_tokens();
  streams_.erase(entry);
  if (!output.finish) {
    on_stop_string_(output.id, num_tokens);
  }
}

}  // namespace rigel
