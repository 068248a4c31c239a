#include "server/commands/throughput.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace rigel::server {
namespace {

using std::chrono::steady_clock;

double seconds_between(steady_clock::time_point begin, steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// When each token of a request came.
struct TokenTimes {
  std::vector<steady_clock::time_point> times;
  bool is_done = false;
  std::string error;
};

/// Requests that run together.
class Crowd {
 public:
  explicit Crowd(std::size_t num_requests) : requests_(num_requests) {}

  void record(std::size_t index, const OutputDelta& delta) {
    const auto now = steady_clock::now();
    const std::lock_guard lock(mutex_);
    TokenTimes& request = requests_[index];
    request.times.insert(request.times.end(), delta.tokens.size(), now);
    if (delta.finish) {
      request.is_done = true;
      request.error =
          delta.finish == FinishReason::kLength ? "" : fmt::format("ended early: {}", delta.error);
      ++num_done_;
      changed_.notify_all();
    }
  }

  /// Waits for all. Throws std::runtime_error if one did not run to its length.
  const std::vector<TokenTimes>& wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_done_ == requests_.size(); });
    for (const TokenTimes& request : requests_) {
      if (!request.error.empty() || request.times.empty()) {
        throw std::runtime_error("a request of the measurement " + request.error);
      }
    }
    return requests_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TokenTimes> requests_;
  std::size_t num_done_ = 0;
};

class CrowdListener final : public OutputListener {
 public:
  CrowdListener(std::shared_ptr<Crowd> crowd, std::size_t index)
      : crowd_(std::move(crowd)), index_(index) {}
  void on_delta(const OutputDelta& delta) override { crowd_->record(index_, delta); }

 private:
  const std::shared_ptr<Crowd> crowd_;
  const std::size_t index_;
};

struct Run {
  steady_clock::time_point begin;
  std::vector<TokenTimes> requests;
};

Run run_together(InferenceService& service, const ThroughputCase& what, int num_tokens,
                 std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<std::int32_t> any_token(0, service.limits().vocab_size - 1);
  std::vector<GenerationRequest> requests(static_cast<std::size_t>(what.concurrency));
  for (GenerationRequest& request : requests) {
    request.prompt.resize(static_cast<std::size_t>(what.input_len));
    std::generate(request.prompt.begin(), request.prompt.end(), [&] { return any_token(random); });
    request.sampling.max_tokens = num_tokens;
    request.sampling.temperature = 0.0f;
    request.sampling.ignore_eos = true;
  }
  const auto crowd = std::make_shared<Crowd>(requests.size());
  const auto begin = steady_clock::now();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const SubmitResult result =
        service.submit(std::move(requests[i]), std::make_shared<CrowdListener>(crowd, i));
    if (result.error) {
      throw std::runtime_error("a request of the measurement was refused: " +
                               result.error->message);
    }
  }
  return {begin, crowd->wait()};
}

steady_clock::time_point last_first_token(const Run& run) {
  steady_clock::time_point last = run.begin;
  for (const TokenTimes& request : run.requests) {
    last = std::max(last, request.times.front());
  }
  return last;
}

/// Tokens a second while every request decodes.
double decode_rate(const Run& run) {
  const steady_clock::time_point begin = last_first_token(run);
  steady_clock::time_point end = steady_clock::time_point::max();
  for (const TokenTimes& request : run.requests) {
    end = std::min(end, request.times.back());
  }
  std::int64_t num_tokens = 0;
  for (const TokenTimes& request : run.requests) {
    num_tokens += std::count_if(request.times.begin(), request.times.end(),
                                [&](auto time) { return time > begin && time <= end; });
  }
  return end > begin ? static_cast<double>(num_tokens) / seconds_between(begin, end) : 0.0;
}

}  // namespace

Throughput measure_throughput(InferenceService& service, const ThroughputCase& what) {
  Throughput result;
  result.prompt_tokens = std::int64_t{what.concurrency} * what.input_len;
  result.new_tokens = std::int64_t{what.concurrency} * what.output_len;

  const Run prefill = run_together(service, what, /*num_tokens=*/1, what.seed);
  result.prefill_tokens_per_s = static_cast<double>(result.prompt_tokens) /
                                seconds_between(prefill.begin, last_first_token(prefill));

  // Other prompts, so that no cache of prefixes can help.
  const Run whole = run_together(service, what, what.output_len, what.seed + 1);
  result.decode_tokens_per_s = decode_rate(whole);
  steady_clock::time_point end = whole.begin;
  for (const TokenTimes& request : whole.requests) {
    end = std::max(end, request.times.back());
  }
  result.total_tokens_per_s = static_cast<double>(result.prompt_tokens + result.new_tokens) /
                              seconds_between(whole.begin, end);
  return result;
}

}  // namespace rigel::server
