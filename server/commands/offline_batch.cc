#include "server/commands/offline_batch.h"

#include <utility>

namespace rigel::server {
namespace {

constexpr std::chrono::milliseconds kShowPause{100};

}  // namespace

struct OfflineBatch::State {
  struct Place {
    FinishedRequest answer;
    bool is_done = false;
    std::optional<RequestId> id;
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Place> places;  // references stay good while it grows
  std::size_t num_done = 0;

  void finish(Place& place) {
    place.is_done = true;
    ++num_done;
    changed.notify_all();
  }
};

class OfflineBatch::Listener final : public OutputListener {
 public:
  Listener(std::shared_ptr<State> state, std::size_t place)
      : state_(std::move(state)), place_(place) {}

  void on_delta(const OutputDelta& delta) override {
    const std::lock_guard lock(state_->mutex);
    State::Place& place = state_->places[place_];
    FinishedRequest& answer = place.answer;
    answer.text += delta.text;
    answer.tokens.insert(answer.tokens.end(), delta.tokens.begin(), delta.tokens.end());
    if (delta.prompt_scores != nullptr) {
      answer.scores = *delta.prompt_scores;
    }
    if (delta.finish) {
      answer.finish = *delta.finish;
      answer.error = delta.error;
      state_->finish(place);
    }
  }

 private:
  const std::shared_ptr<State> state_;
  const std::size_t place_;
};

OfflineBatch::OfflineBatch(InferenceService& service, std::size_t num_requests)
    : service_(service), num_requests_(num_requests), state_(std::make_shared<State>()) {}

OfflineBatch::~OfflineBatch() {
  std::vector<RequestId> running;
  {
    const std::lock_guard lock(state_->mutex);
    for (const State::Place& place : state_->places) {
      if (!place.is_done && place.id) {
        running.push_back(*place.id);
      }
    }
  }
  for (const RequestId id : running) {
    service_.cancel(id);
  }
}

std::size_t OfflineBatch::add(GenerationRequest request) {
  std::size_t index = 0;
  {
    const std::lock_guard lock(state_->mutex);
    index = state_->places.size();
    state_->places.emplace_back();
  }
  for (;;) {
    std::size_t num_done_before = 0;
    {
      const std::lock_guard lock(state_->mutex);
      num_done_before = state_->num_done;
    }
    SubmitResult result = service_.submit(request, std::make_shared<Listener>(state_, index));
    std::unique_lock lock(state_->mutex);
    State::Place& place = state_->places[index];
    if (!result.error) {
      place.id = result.id;
      return index;
    }
    if (result.error->kind != RequestError::Kind::kOverloaded) {
      place.answer.refusal = std::move(result.error);
      state_->finish(place);
      return index;
    }
    // The queue has room again when requests have ended, or when waiting ones have begun to run.
    state_->changed.wait_for(lock, kShowPause, [&] { return state_->num_done != num_done_before; });
    bar_.show(static_cast<std::int64_t>(state_->num_done),
              static_cast<std::int64_t>(num_requests_));
  }
}

FinishedRequest OfflineBatch::take(std::size_t place) {
  std::unique_lock lock(state_->mutex);
  State::Place& wanted = state_->places[place];
  while (!state_->changed.wait_for(lock, kShowPause, [&] { return wanted.is_done; })) {
    bar_.show(static_cast<std::int64_t>(state_->num_done),
              static_cast<std::int64_t>(num_requests_));
  }
  return std::move(wanted.answer);
}

}  // namespace rigel::server
