#include "server/api/running_call.h"

#include "server/api/answers.h"
#include "server/api/prepare.h"
#include "server/log.h"

#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <mutex>
#include <utility>

namespace rigel::server {
namespace {

constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

/// What one choice has come to so far.
struct ChoiceState {
  std::string text;                    // whole answers only
  std::vector<GeneratedToken> tokens;  // whole answers with log-probabilities only
  std::size_t num_code_points =
      0;  // before what comes next; of a whole answer, before what was generated
  std::optional<FinishReason> finish;
  std::string stop_string;
  std::optional<std::int32_t> stop_token;
  std::vector<std::int32_t> prompt;  // whole answers that echo it with log-probabilities only
  bool echoes_text = false;          // rather than token ids
  EchoedPrompt echoed;               // of a prompt's first choice
};

class RunningCall final : public OngoingCall, public std::enable_shared_from_this<RunningCall> {
 public:
  RunningCall(const ServedModel& model, GenerationCall call,
              std::shared_ptr<http::Exchange> exchange, std::string request_id);

  void start(std::vector<GenerationRequest> requests);
  void on_delta(std::size_t index, const OutputDelta& delta);
  void cancel();
  void cut_off() override;

 private:
  void open_choices(const std::vector<GenerationRequest>& requests);
  void begin_answer();
  void fail(const ApiError& error);
  void stream_delta(std::size_t index, const OutputDelta& delta);
  void keep_delta(ChoiceState& choice, const OutputDelta& delta);
  [[nodiscard]] std::optional<std::int32_t> stop_token(const OutputDelta& delta) const;
  void finish_choice(const OutputDelta& delta);
  void finish_answer();
  void end_stream();
  void send_event(std::string_view chunk);
  [[nodiscard]] std::string whole_body() const;
  [[nodiscard]] bool with_logprobs() const { return call_.sampling.logprobs.has_value(); }

  InferenceService& service_;
  const TextCodec& codec_;
  const GenerationCall call_;
  const std::shared_ptr<http::Exchange> exchange_;
  const AnswerHead head_;

  std::mutex mutex_;  // guards everything below; never held while the service is called
  std::vector<RequestId> ids_;
  std::vector<ChoiceState> choices_;
  std::size_t num_unfinished_ = 0;
  Usage usage_;
  std::string backlog_;  // events made before everything was submitted
  bool is_answering_ = false;
  bool is_cancelled_ = false;
  bool has_failed_ = false;
};

class ChoiceListener final : public OutputListener {
 public:
  ChoiceListener(std::shared_ptr<RunningCall> call, std::size_t index)
      : call_(std::move(call)), index_(index) {}
  void on_delta(const OutputDelta& delta) override {
    try {
      call_->on_delta(index_, delta);
    } catch (...) {
      log_error("an answer could not be written; its request is cancelled");
      call_->cancel();
    }
  }

 private:
  const std::shared_ptr<RunningCall> call_;
  const std::size_t index_;
};

RunningCall::RunningCall(const ServedModel& model, GenerationCall call,
                         std::shared_ptr<http::Exchange> exchange, std::string request_id)
    : service_(model.service),
      codec_(model.text),
      call_(std::move(call)),
      exchange_(std::move(exchange)),
      head_{.kind = call_.kind,
            .id = std::move(request_id),
            .created = std::time(nullptr),
            .model = model.name} {}

void RunningCall::start(std::vector<GenerationRequest> requests) {
  open_choices(requests);
  exchange_->on_client_gone([weak = weak_from_this()] {
    if (const auto self = weak.lock()) {
      self->cancel();
    }
  });
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].label = head_.id;
    const SubmitResult result = service_.submit(
        std::move(requests[i]), std::make_shared<ChoiceListener>(shared_from_this(), i));
    if (result.error) {
      cancel();
      return fail(api_error_of(*result.error));
    }
    bool cancelled = false;
    {
      const std::lock_guard lock(mutex_);
      ids_.push_back(result.id);
      cancelled = is_cancelled_;
    }
    if (cancelled) {
      service_.cancel(result.id);
      return;
    }
  }
  begin_answer();
}

void RunningCall::open_choices(const std::vector<GenerationRequest>& requests) {
  choices_.resize(requests.size());
  num_unfinished_ = requests.size();
  const auto num_choices = static_cast<std::size_t>(call_.num_choices);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (i % num_choices == 0) {
      usage_.prompt_tokens += static_cast<std::int64_t>(requests[i].prompt.size());
    }
    std::string echo;
    if (call_.echo) {
      const auto* text = std::get_if<std::string>(&call_.prompts[i / num_choices]);
      echo = text != nullptr ? *text : decode(codec_, requests[i].prompt, /*skip_special=*/false);
      choices_[i].echoes_text = text != nullptr;
    }
    choices_[i].num_code_points = num_code_points(echo);
    if (requests[i].prompt_top) {
      choices_[i].prompt = requests[i].prompt;
    }
    if (!call_.stream) {
      choices_[i].text = std::move(echo);
      continue;
    }
    if (call_.kind == CallKind::kChat) {
      send_event(role_chunk(head_, static_cast<int>(i), call_.include_usage));
    } else if (!echo.empty()) {
      send_event(answer_chunk(head_, {.index = static_cast<int>(i), .text = echo},
                              call_.include_usage, codec_));
    }
  }
}

// Until here an error can still have its own status: nothing is sent before everything is submitted.
void RunningCall::begin_answer() {
  const std::lock_guard lock(mutex_);
  if (has_failed_) {
    return;
  }
  is_answering_ = true;
  if (call_.stream) {
    exchange_->begin_stream("text/event-stream; charset=utf-8");
    exchange_->write(backlog_);
    backlog_.clear();
  }
  if (num_unfinished_ == 0) {
    finish_answer();
  }
}

void RunningCall::fail(const ApiError& error) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(has_failed_, true)) {
    exchange_->respond(error_response(error));
  }
}

void RunningCall::cancel() {
  std::vector<RequestId> ids;
  {
    const std::lock_guard lock(mutex_);
    is_cancelled_ = true;
    ids = ids_;
  }
  for (const RequestId id : ids) {
    service_.cancel(id);
  }
}

void RunningCall::cut_off() {
  const ApiError error{
      .status = 503, .message = fmt::format("The server is shutting down (request {})", head_.id)};
  {
    const std::lock_guard lock(mutex_);
    const bool is_over = is_answering_ && num_unfinished_ == 0;
    if (is_over || std::exchange(has_failed_, true)) {
      return;
    }
    if (is_answering_ && call_.stream) {
      send_event(error_body(error));
      end_stream();
    } else {
      exchange_->respond(error_response(error));
    }
  }
  log_warning(fmt::format("{}: cut off by the shutdown", head_.id));
  cancel();
}

void RunningCall::on_delta(std::size_t index, const OutputDelta& delta) {
  bool is_lost = false;
  {
    const std::lock_guard lock(mutex_);
    usage_.completion_tokens += static_cast<std::int64_t>(delta.tokens.size());
    ChoiceState& choice = choices_[index];
    if (call_.stream) {
      stream_delta(index, delta);
    } else {
      keep_delta(choice, delta);
    }
    if (delta.finish) {
      choice.finish = delta.finish;
      usage_.cached_tokens +=
          index % static_cast<std::size_t>(call_.num_choices) == 0 ? delta.num_cached_tokens : 0;
      finish_choice(delta);
    }
    is_lost = has_failed_ && num_unfinished_ > 0 && !std::exchange(is_cancelled_, true);
  }
  if (is_lost) {
    cancel();
  }
}

void RunningCall::stream_delta(std::size_t index, const OutputDelta& delta) {
  ChoiceState& choice = choices_[index];
  const bool says_something =
      !delta.text.empty() || delta.finish || (with_logprobs() && !delta.tokens.empty());
  if (says_something && delta.finish != FinishReason::kError) {
    send_event(answer_chunk(head_,
                            {.index = static_cast<int>(index),
                             .text = delta.text,
                             .tokens = delta.tokens,
                             .with_logprobs = with_logprobs(),
                             .text_offset = choice.num_code_points,
                             .finish = delta.finish,
                             .stop_string = delta.stop_string,
                             .stop_token = stop_token(delta)},
                            call_.include_usage, codec_));
  }
  choice.num_code_points += num_code_points(delta.text);
}

void RunningCall::keep_delta(ChoiceState& choice, const OutputDelta& delta) {
  choice.text += delta.text;
  if (with_logprobs()) {
    choice.tokens.insert(choice.tokens.end(), delta.tokens.begin(), delta.tokens.end());
  }
  if (!delta.stop_string.empty()) {
    choice.stop_string = delta.stop_string;
  }
  choice.stop_token = stop_token(delta);
  if (delta.prompt_scores != nullptr && !choice.prompt.empty()) {
    // A text is echoed as it was given: without the special tokens that were added to it.
    choice.echoed = echoed_prompt(choice.prompt, *delta.prompt_scores, choice.echoes_text, codec_);
  }
}

/// The stop token that the caller asked for and that ended the choice, if one did.
std::optional<std::int32_t> RunningCall::stop_token(const OutputDelta& delta) const {
  if (delta.finish != FinishReason::kStop || delta.tokens.empty()) {
    return std::nullopt;
  }
  const std::int32_t last = delta.tokens.back().id;
  const auto& asked = call_.sampling.stop_token_ids;
  return std::find(asked.begin(), asked.end(), last) != asked.end() ? std::optional(last)
                                                                    : std::nullopt;
}

void RunningCall::finish_choice(const OutputDelta& delta) {
  --num_unfinished_;
  if (delta.finish == FinishReason::kError) {
    log_error(fmt::format("{}: {}", head_.id, delta.error));
    const ApiError error{.status = 500,
                         .message = fmt::format("{} (request {})", delta.error, head_.id)};
    if (call_.stream) {
      send_event(error_body(error));
    } else if (!std::exchange(has_failed_, true)) {
      exchange_->respond(error_response(error));
    }
  }
  if (num_unfinished_ == 0 && is_answering_ && !has_failed_) {
    finish_answer();
  }
}

void RunningCall::finish_answer() {
  if (!call_.stream) {
    exchange_->respond({.body = whole_body()});
    return;
  }
  if (call_.include_usage) {
    send_event(usage_chunk(head_, usage_));
  }
  end_stream();
}

void RunningCall::end_stream() {
  exchange_->write(kDoneEvent);
  exchange_->end_stream();
}

// A client that lags too far is dropped by the exchange, which then calls cancel() by way of on_client_gone.
void RunningCall::send_event(std::string_view chunk) {
  if (is_answering_) {
    exchange_->write(server_sent_event(chunk));
  } else {
    backlog_ += server_sent_event(chunk);
  }
}

std::string RunningCall::whole_body() const {
  const bool echoes_with_logprobs = call_.echo && with_logprobs();
  const auto num_choices = static_cast<std::size_t>(call_.num_choices);
  std::vector<ChoiceText> choices;
  for (const ChoiceState& choice : choices_) {
    const ChoiceState& first = choices_[choices.size() / num_choices * num_choices];
    choices.push_back({.index = static_cast<int>(choices.size()),
                       .text = choice.text,
                       .tokens = choice.tokens,
                       .prompt = echoes_with_logprobs ? &first.echoed : nullptr,
                       .with_logprobs = with_logprobs(),
                       .text_offset = choice.num_code_points,
                       .finish = choice.finish,
                       .stop_string = choice.stop_string,
                       .stop_token = choice.stop_token});
  }
  return answer_body(head_, choices, usage_, codec_);
}

}  // namespace

void run_generation_call(const ServedModel& model, GenerationCall call,
                         std::shared_ptr<http::Exchange> exchange, const std::string& request_id,
                         OngoingCalls& ongoing) {
  Parsed<std::vector<GenerationRequest>> requests =
      prepare_requests(call, model.text, model.service.limits());
  if (!requests.ok()) {
    return exchange->respond(error_response(requests.error()));
  }
  const auto running =
      std::make_shared<RunningCall>(model, std::move(call), std::move(exchange), request_id);
  ongoing.add(running);
  running->start(std::move(requests.value()));
}

http::Response error_response(const ApiError& error) {
  http::Response response{.status = error.status, .body = error_body(error)};
  if (error.status == 503) {
    response.headers.emplace_back("Retry-After", "1");
  }
  return response;
}

ApiError api_error_of(const RequestError& error) {
  return {.status = error.kind == RequestError::Kind::kInvalid ? 400 : 503,
          .message = error.message,
          .param = error.param};
}

}  // namespace rigel::server
