// How a mix is put through a service.

#include "tests/worker/request_mix.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

namespace rigel::testing {

namespace {

/// What the requests of a mix have got together, and who waits for it.
class MixProgress {
 public:
  void add_tokens(std::size_t count) {
    const std::lock_guard lock(mutex_);
    num_tokens_ += count;
    changed_.notify_all();
  }
  void add_submitted() {
    const std::lock_guard lock(mutex_);
    ++num_unfinished_;
  }
  void add_finished() {
    const std::lock_guard lock(mutex_);
    --num_unfinished_;
    changed_.notify_all();
  }
  /// Until the mix has got `num_tokens`, or nobody is left who could get more.
  void wait_for_tokens(std::size_t num_tokens) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_tokens_ >= num_tokens || num_unfinished_ == 0; });
  }
  void wait_for_all() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_unfinished_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t num_tokens_ = 0;
  std::size_t num_unfinished_ = 0;
};

/// Collects one answer and cancels its request when it is time.
class MixListener final : public OutputListener {
 public:
  MixListener(InferenceService& service, MixProgress& progress, std::optional<int> cancel_after)
      : service_(service), progress_(progress), cancel_after_(cancel_after) {}

  void on_delta(const OutputDelta& delta) override {
    answer_.text += delta.text;
    for (const GeneratedToken& token : delta.tokens) {
      answer_.ids.push_back(token.id);
      answer_.logprobs.insert(answer_.logprobs.end(), token.logprobs.begin(), token.logprobs.end());
    }
    cancel_if_due(delta.tokens.size());
    progress_.add_tokens(delta.tokens.size());
    if (delta.finish) {
      answer_.finish = *delta.finish;
      answer_.stop_string = delta.stop_string;
      answer_.error = delta.error;
      if (delta.prompt_scores != nullptr) {
        answer_.scores = *delta.prompt_scores;
      }
      progress_.add_finished();
    }
  }
  /// The request's id is known: possibly only after its first tokens.
  void submitted(RequestId id) {
    {
      const std::lock_guard lock(mutex_);
      id_ = id;
    }
    cancel_if_due(0);
  }
  /// After its last delta.
  [[nodiscard]] const MixedAnswer& answer() const { return answer_; }

 private:
  void cancel_if_due(std::size_t num_new_tokens) {
    std::optional<RequestId> due;
    {
      const std::lock_guard lock(mutex_);
      num_tokens_ += static_cast<int>(num_new_tokens);
      if (id_ && cancel_after_ && num_tokens_ >= *cancel_after_) {
        due = std::exchange(id_, std::nullopt);
      }
    }
    if (due) {
      service_.cancel(*due);
    }
  }

  InferenceService& service_;
  MixProgress& progress_;
  std::optional<int> cancel_after_;
  MixedAnswer answer_;
  std::mutex mutex_;
  std::optional<RequestId> id_;
  int num_tokens_ = 0;
};

}  // namespace

std::vector<MixedAnswer> run_mix(InferenceService& service, const std::vector<MixedRequest>& mix,
                                 Cancels cancels) {
  MixProgress progress;
  std::vector<std::shared_ptr<MixListener>> listeners;
  std::vector<std::string> refusals;
  for (const MixedRequest& mixed : mix) {
    progress.wait_for_tokens(static_cast<std::size_t>(mixed.arrives_after));
    auto listener = std::make_shared<MixListener>(
        service, progress, cancels == Cancels::kObey ? mixed.cancel_after : std::nullopt);
    progress.add_submitted();
    const SubmitResult result = service.submit(mixed.request, listener);
    if (result.error) {
      progress.add_finished();
    } else {
      listener->submitted(result.id);
    }
    refusals.push_back(result.error ? result.error->message : "");
    listeners.push_back(std::move(listener));
  }
  progress.wait_for_all();
  std::vector<MixedAnswer> answers;
  for (std::size_t index = 0; index < listeners.size(); ++index) {
    answers.push_back(listeners[index]->answer());
    if (!refusals[index].empty()) {
      answers.back().finish = FinishReason::kError;
      answers.back().error = refusals[index];
    }
  }
  return answers;
}

}  // namespace rigel::testing
