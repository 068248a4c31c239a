#include "tests/server/fake_service.h"

namespace rigel::server {

using std::chrono::steady_clock;

FakeService::FakeService() : dispatcher_([this] { deliver_all(); }) {}

FakeService::~FakeService() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  changed_.notify_all();
  dispatcher_.join();
}

void FakeService::set_script(FakeScript script) {
  const std::lock_guard lock(mutex_);
  script_ = std::move(script);
}

void FakeService::refuse_with(std::optional<RequestError> error) {
  const std::lock_guard lock(mutex_);
  refusal_ = std::move(error);
}

std::vector<GenerationRequest> FakeService::submitted() const {
  const std::lock_guard lock(mutex_);
  return submitted_;
}

bool FakeService::wait_for_cancelled(int count, std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [&] { return num_cancelled_ >= count; });
}

bool FakeService::wait_for_submitted(std::size_t count, std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [&] { return submitted_.size() >= count; });
}

SubmitResult FakeService::submit(GenerationRequest request,
                                 std::shared_ptr<OutputListener> listener) {
  const std::lock_guard lock(mutex_);
  if (refusal_) {
    return {.error = refusal_};
  }
  const std::uint64_t id = next_id_++;
  submitted_.push_back(request);
  running_[id] = {.request = std::move(request),
                  .listener = std::move(listener),
                  .script = script_,
                  .next_piece = 0,
                  .due = steady_clock::now() + script_.pause,
                  .is_cancelled = false};
  changed_.notify_all();
  return {.id = RequestId{id}, .error = {}};
}

void FakeService::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  const auto it = running_.find(static_cast<std::uint64_t>(id));
  if (it != running_.end() && !it->second.is_cancelled) {
    it->second.is_cancelled = true;
    ++num_cancelled_;
    changed_.notify_all();
  }
}

ServiceMetrics FakeService::metrics() const {
  ServiceMetrics metrics;
  metrics.num_running = num_unfinished();
  metrics.prompt_tokens = 7;
  metrics.finished = {3, 2, 1, 0};
  metrics.time_to_first_token_seconds = {
      .bounds = {0.001, 0.5}, .counts = {2, 1, 1}, .sum = 1.25, .count = 4};
  metrics.wasted_row_steps = {4, 5, 0};
  const Histogram step = {.bounds = {1e-5}, .counts = {2, 1}, .sum = 0.5, .count = 3};
  metrics.host_step_seconds = {{"build", step}, {"total", step}};
  metrics.gpu_idle_between_steps_seconds = {
      .bounds = {0.0}, .counts = {6, 1}, .sum = 0.25, .count = 7};
  metrics.memory_bytes = {{"weights", 1000}, {"kv_cache", 2000}};
  return metrics;
}

std::int64_t FakeService::num_unfinished() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(running_.size());
}

/// Token i has the log-probability -i, and so have as many rivals as are asked for, with the ids of the alphabet.
PromptScores FakeService::scores_of(const GenerationRequest& request) {
  PromptScores scores;
  for (std::size_t i = 1; i <= request.prompt.size(); ++i) {
    const float logprob = -static_cast<float>(i);
    if (i < request.prompt.size()) {
      scores.logprobs.push_back(logprob);
    }
    std::vector<TokenLogprob>& top = scores.top.emplace_back();
    for (int k = 0; k < *request.prompt_top; ++k) {
      top.push_back({.id = 'A' + k, .logprob = logprob});
    }
  }
  return scores;
}

bool FakeService::advance(Running& running) const {
  const FakeScript& script = running.script;
  const auto num_prompt_tokens = static_cast<int>(running.request.prompt.size());
  OutputDelta delta;
  delta.num_prompt_tokens = num_prompt_tokens;
  delta.num_cached_tokens = script.num_cached_tokens;
  if (running.is_cancelled) {
    delta.finish = FinishReason::kCancelled;
    running.listener->on_delta(delta);
    return false;
  }
  std::vector<GeneratedToken> tokens;
  if (running.next_piece < script.pieces.size()) {
    const std::string& piece = script.pieces[running.next_piece];
    delta.text = piece;
    const std::int32_t id = piece.empty() ? 0 : static_cast<unsigned char>(piece.front());
    tokens.push_back({.id = id, .logprobs = {}});
    for (int k = 0; running.request.sampling.logprobs && k <= *running.request.sampling.logprobs;
         ++k) {
      tokens.back().logprobs.push_back(
          {.id = k == 0 ? id : 'a' + k, .logprob = -0.5f * static_cast<float>(k + 1)});
    }
    delta.tokens = tokens;
    ++running.next_piece;
  }
  if (script.never_ends) {
    running.next_piece = std::min(running.next_piece, script.pieces.size() - 1);
  } else if (running.next_piece == script.pieces.size()) {
    delta.finish = script.finish;
    delta.error = script.error;
    delta.stop_string = script.stop_string;
  }
  PromptScores scores;
  if (delta.finish && running.request.prompt_top) {
    scores = scores_of(running.request);
    delta.prompt_scores = &scores;
  }
  running.due = steady_clock::now() + script.pause;
  running.listener->on_delta(delta);
  return !delta.finish;
}

// Listeners are called without the lock: they may call back.
void FakeService::deliver_all() {
  std::unique_lock lock(mutex_);
  while (!is_stopped_) {
    const auto now = steady_clock::now();
    std::vector<std::uint64_t> ready;
    auto next_due = now + std::chrono::milliseconds(50);
    for (const auto& [id, running] : running_) {
      if (running.is_cancelled || running.due <= now) {
        ready.push_back(id);
      } else {
        next_due = std::min(next_due, running.due);
      }
    }
    for (const std::uint64_t id : ready) {
      Running running = running_.at(id);
      lock.unlock();
      const bool goes_on = advance(running);
      lock.lock();
      if (goes_on) {
        running.is_cancelled = running_.at(id).is_cancelled;
        running_[id] = std::move(running);
      } else {
        running_.erase(id);
      }
    }
    if (ready.empty()) {
      changed_.wait_until(lock, next_due);
    }
  }
}

std::vector<std::int32_t> FakeCodec::encode(std::string_view text, bool add_special,
                                            bool /*parse_special*/) const {
  std::vector<std::int32_t> ids;
  if (add_special) {
    ids.push_back(1);
  }
  for (const char byte : text) {
    ids.push_back(static_cast<unsigned char>(byte));
  }
  return ids;
}

std::vector<std::string> FakeCodec::pieces(std::span<const std::int32_t> ids,
                                           bool skip_special) const {
  std::vector<std::string> out;
  for (const std::int32_t id : ids) {
    out.push_back(id == 1 && skip_special ? std::string() : token_bytes(id));
  }
  out.emplace_back();
  return out;
}

}  // namespace rigel::server
