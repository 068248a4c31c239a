// The whole worker on a tiny model: batching, cancelling, preemption, scoring, failing requests.

#include "worker/local_service.h"

#include "tests/worker/tiny_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <random>

namespace rigel {
namespace {

using ::testing::HasSubstr;

#if defined(__SANITIZE_THREAD__)
constexpr std::size_t kNumRequests = 8;
#else
constexpr std::size_t kNumRequests = 24;
#endif

/// A whole answer.
struct Answer {
  std::vector<std::int32_t> ids;
  std::vector<float> logprobs;
  FinishReason finish{};
  std::string error;
  PromptScores scores;
  int num_cached_tokens = 0;

  friend bool operator==(const Answer& a, const Answer& b) {
    return a.ids == b.ids && a.logprobs == b.logprobs && a.finish == b.finish;
  }
};

class AnswerCollector final : public OutputListener {
 public:
  void on_delta(const OutputDelta& delta) override {
    for (const GeneratedToken& token : delta.tokens) {
      answer_.ids.push_back(token.id);
      for (const TokenLogprob& logprob : token.logprobs) {
        answer_.logprobs.push_back(logprob.logprob);
      }
    }
    if (delta.finish) {
      answer_.finish = *delta.finish;
      answer_.num_cached_tokens = delta.num_cached_tokens;
      answer_.error = delta.error;
      if (delta.prompt_scores != nullptr) {
        answer_.scores = *delta.prompt_scores;
      }
      ended_.set_value(std::move(answer_));
    }
  }
  std::future<Answer> future() { return ended_.get_future(); }

 private:
  Answer answer_;
  std::promise<Answer> ended_;
};

class IgnoresOutput final : public OutputListener {
 public:
  void on_delta(const OutputDelta&) override {}
};

class LocalServiceTest : public testing::TinyServiceTest {
 protected:
  static WorkerOptions options() {
    WorkerOptions options;
    options.dtype = "float32";
    options.num_threads = 2;
    options.max_model_len = 512;
    options.kv_cache_memory_bytes = 8 << 20;
    return options;
  }
  static std::unique_ptr<LocalService> start(const WorkerOptions& options) {
    return start_local_service(files(), nullptr, options, nullptr);
  }
  static std::future<Answer> submit(InferenceService& service, GenerationRequest request,
                                    RequestId* id = nullptr) {
    auto collector = std::make_shared<AnswerCollector>();
    auto future = collector->future();
    const SubmitResult result = service.submit(std::move(request), collector);
    EXPECT_FALSE(result.error.has_value()) << result.error->message;
    if (id != nullptr) {
      *id = result.id;
    }
    return future;
  }
  /// Requests of all kinds, the same each time for one seed.
  static std::vector<GenerationRequest> random_requests(unsigned seed, std::size_t count) {
    std::mt19937 random(seed);
    std::vector<GenerationRequest> requests(count);
    for (GenerationRequest& request : requests) {
      request.prompt.resize(1 + random() % 90);
      for (auto& token : request.prompt) {
        token = static_cast<std::int32_t>(3 + random() % 500);
      }
      SamplingParams& sampling = request.sampling;
      sampling.max_tokens = static_cast<int>(1 + random() % 40);
      sampling.temperature = random() % 2 == 0 ? 0.0f : 0.8f;
      sampling.top_k = static_cast<int>(random() % 3) * 20;
      sampling.top_p = random() % 2 == 0 ? 1.0f : 0.9f;
      sampling.seed = random();
      sampling.ignore_eos = random() % 2 == 0;
      if (random() % 3 == 0) {
        sampling.repetition_penalty = 1.3f;
        sampling.frequency_penalty = 0.2f;
      }
      if (random() % 2 == 0) {
        sampling.logprobs = static_cast<int>(random() % 4);
      }
      if (random() % 4 == 0) {
        sampling.logit_bias = {{7, 3.0f}, {9, -100.0f}};
      }
      if (random() % 4 == 0) {
        sampling.min_tokens = 3;
      }
    }
    return requests;
  }
  static std::vector<Answer> run_together(const WorkerOptions& options,
                                          const std::vector<GenerationRequest>& requests) {
    const auto service = start(options);
    std::vector<std::future<Answer>> futures;
    for (const GenerationRequest& request : requests) {
      futures.push_back(submit(*service, request));
    }
    std::vector<Answer> answers;
    for (auto& future : futures) {
      answers.push_back(future.get());
    }
    return answers;
  }
};

/// One conversation: each turn is asked behind what was said before.
std::vector<Answer> converse(const std::function<std::future<Answer>(GenerationRequest)>& submit,
                             float repetition_penalty) {
  GenerationRequest request;
  std::mt19937 random(5);
  std::vector<Answer> answers;
  for (int turn = 0; turn < 4; ++turn) {
    for (int token = 0; token < 21; ++token) {
      request.prompt.push_back(static_cast<std::int32_t>(3 + random() % 500));
    }
    request.sampling.max_tokens = 18;
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = 1;
    request.sampling.temperature = turn % 2 == 0 ? 0.0f : 0.9f;
    request.sampling.seed = 77;
    request.sampling.repetition_penalty = repetition_penalty;
    request.sampling.frequency_penalty = repetition_penalty > 1.0f ? 0.4f : 0.0f;
    answers.push_back(submit(request).get());
    const auto& ids = answers.back().ids;
    request.prompt.insert(request.prompt.end(), ids.begin(), ids.end());
  }
  return answers;
}

TEST_F(LocalServiceTest, AnswersDoNotDependOnCompanyChunksOrRows) {
  const auto requests = random_requests(1, kNumRequests);
  WorkerOptions alone = options();
  alone.max_num_seqs = 1;
  const auto expected = run_together(alone, requests);
  WorkerOptions chunked = options();
  chunked.max_num_seqs = 6;
  chunked.max_num_batched_tokens = 19;
  const auto in_chunks = run_together(chunked, requests);
  WorkerOptions in_turn = options();
  in_turn.async_scheduling = false;
  const auto step_by_step = run_together(in_turn, requests);
  const auto together = run_together(options(), requests);
  for (std::size_t index = 0; index < requests.size(); ++index) {
    EXPECT_EQ(together[index], expected[index]) << "request " << index;
    EXPECT_EQ(in_chunks[index], expected[index]) << "request " << index;
    EXPECT_EQ(step_by_step[index], expected[index]) << "request " << index;
  }
}

TEST_F(LocalServiceTest, PenaltiesCountPromptTokensOfStepsInWhichNobodySamples) {
  GenerationRequest request;
  for (int token = 0; token < 90; ++token) {
    request.prompt.push_back(3 + token % 45);
  }
  request.sampling.max_tokens = 30;
  request.sampling.temperature = 0;
  request.sampling.repetition_penalty = 2.0f;
  request.sampling.ignore_eos = true;
  const Answer whole = run_together(options(), {request}).front();
  WorkerOptions chunked = options();
  chunked.max_num_batched_tokens = 16;
  chunked.max_num_seqs = 1;
  EXPECT_EQ(run_together(chunked, {request}).front(), whole);
  request.sampling.repetition_penalty = 1.0f;
  EXPECT_NE(run_together(options(), {request}).front().ids, whole.ids)
      << "the penalty changes nothing";
}

TEST_F(LocalServiceTest, PreemptedRequestsGetTheSameAnswers) {
  auto requests = random_requests(2, 16);
  for (GenerationRequest& request : requests) {
    request.sampling.max_tokens = 40;
    request.sampling.ignore_eos = true;
  }
  const auto expected = run_together(options(), requests);
  WorkerOptions tight = options();
  tight.max_model_len = 160;
  tight.kv_cache_memory_bytes = 24 * testing::kTinyPageBytes;
  const auto service = start(tight);
  std::vector<std::future<Answer>> futures;
  for (const GenerationRequest& request : requests) {
    futures.push_back(submit(*service, request));
  }
  for (std::size_t index = 0; index < requests.size(); ++index) {
    EXPECT_EQ(futures[index].get(), expected[index]) << "request " << index;
  }
  EXPECT_GT(service->metrics().num_preemptions, 0U);
  EXPECT_EQ(service->metrics().num_running, 0);
  std::size_t num_prompt_tokens = 0;
  for (const GenerationRequest& request : requests) {
    num_prompt_tokens += request.prompt.size();
  }
  EXPECT_EQ(service->metrics().prompt_tokens, num_prompt_tokens) << "each prompt counts once";
}

TEST_F(LocalServiceTest, ManyShortRequestsWithCancelsLeaveEveryPage) {
  const auto service = start(options());
  std::mt19937 random(4);
  std::vector<std::future<Answer>> futures;
  for (int round = 0; round < 400; ++round) {
    GenerationRequest request;
    request.prompt.assign(1 + random() % 30, 5);
    request.sampling.max_tokens = static_cast<int>(1 + random() % 12);
    request.sampling.temperature = 0;
    RequestId id{};
    futures.push_back(submit(*service, request, &id));
    if (random() % 10 < 3) {
      service->cancel(id);
    }
  }
  for (auto& future : futures) {
    EXPECT_NE(future.get().finish, FinishReason::kError);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (service->metrics().kv_cache_usage > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(service->metrics().kv_cache_usage, 0.0);
  EXPECT_EQ(service->num_unfinished(), 0);
}

TEST_F(LocalServiceTest, ABurstIsRefusedBeyondTheRowsAndTheQueue) {
  WorkerOptions few = options();
  few.max_num_seqs = 1;
  few.max_waiting = 2;
  const auto service = start(few);
  GenerationRequest request;
  request.prompt = {5, 6, 7};
  request.sampling.max_tokens = 400;
  request.sampling.ignore_eos = true;
  int num_refused = 0;
  for (int turn = 0; turn < 50; ++turn) {
    const SubmitResult result = service->submit(request, std::make_shared<IgnoresOutput>());
    if (result.error) {
      EXPECT_EQ(result.error->kind, RequestError::Kind::kOverloaded);
      ++num_refused;
    }
    EXPECT_LE(service->num_unfinished(), 3);
  }
  EXPECT_GT(num_refused, 0);
}

TEST_F(LocalServiceTest, ACancelledRequestEndsAndTheOthersGoOn) {
  const auto service = start(options());
  GenerationRequest endless;
  endless.prompt = {5, 6, 7};
  endless.sampling.max_tokens = 400;
  endless.sampling.ignore_eos = true;
  RequestId id{};
  auto cancelled = submit(*service, endless, &id);
  GenerationRequest short_one = endless;
  short_one.sampling.max_tokens = 4;
  auto other = submit(*service, short_one);
  service->cancel(id);
  EXPECT_EQ(cancelled.get().finish, FinishReason::kCancelled);
  const Answer answer = other.get();
  EXPECT_EQ(answer.finish, FinishReason::kLength);
  EXPECT_EQ(answer.ids.size(), 4U);
}

TEST_F(LocalServiceTest, AStopTokenWastesAtMostOneRowStepAndALengthNone) {
  const auto service = start(options());
  GenerationRequest request;
  request.prompt = {9, 8, 7};
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 20;
  request.sampling.ignore_eos = true;
  const Answer whole = submit(*service, request).get();
  EXPECT_EQ(service->metrics().wasted_row_steps[0], 0U);
  const std::int32_t stop = whole.ids[7];
  const auto first = std::ranges::find(whole.ids, stop) - whole.ids.begin();
  request.sampling.stop_token_ids = {stop};
  const Answer stopped = submit(*service, request).get();
  EXPECT_EQ(stopped.finish, FinishReason::kStop);
  EXPECT_EQ(static_cast<std::ptrdiff_t>(stopped.ids.size()), first + 1);
  EXPECT_EQ(service->metrics().wasted_row_steps[0], 1U);
}

TEST_F(LocalServiceTest, ALengthFinishGivesExactlyThatManyTokens) {
  const auto service = start(options());
  for (int max_tokens = 1; max_tokens <= 8; ++max_tokens) {
    GenerationRequest request;
    request.prompt = {9, 8, 7};
    request.sampling.max_tokens = max_tokens;
    request.sampling.ignore_eos = true;
    EXPECT_EQ(submit(*service, request).get().ids.size(), static_cast<std::size_t>(max_tokens));
  }
}

TEST_F(LocalServiceTest, APromptCountsOnceItHasBeenComputed) {
  const auto service = start(options());
  GenerationRequest request;
  request.prompt.assign(20, 4);
  request.inputs = {{"node", "input", {}}};
  EXPECT_EQ(submit(*service, request).get().finish, FinishReason::kError);
  EXPECT_EQ(service->metrics().prompt_tokens, 0U) << "it never ran";
  request.inputs.clear();
  request.sampling.max_tokens = 1;
  EXPECT_EQ(submit(*service, request).get().ids.size(), 1U);
  EXPECT_EQ(service->metrics().prompt_tokens, 20U);
  request.sampling.max_tokens = 0;
  request.prompt_top = 0;
  EXPECT_EQ(submit(*service, request).get().scores.logprobs.size(), 19U);
  EXPECT_EQ(service->metrics().prompt_tokens, 40U) << "a scored prompt, too";
}

TEST_F(LocalServiceTest, NeighbouringSeedsShareNoStreams) {
  std::vector<std::vector<std::int32_t>> seen;
  for (const std::uint64_t seed : {0, 1}) {
    WorkerOptions seeded = options();
    seeded.seed = seed;
    const auto service = start(seeded);
    GenerationRequest request;
    request.prompt = {9, 8, 7};
    request.sampling.max_tokens = 12;
    request.sampling.ignore_eos = true;
    for (int index = 0; index < 2; ++index) {
      seen.push_back(submit(*service, request).get().ids);
      EXPECT_EQ(std::ranges::count(seen, seen.back()), 1) << "seed " << seed << ", " << index;
    }
  }
}

TEST_F(LocalServiceTest, GenerationEndsAtTheContextLimit) {
  WorkerOptions limited = options();
  limited.max_model_len = 32;
  const auto service = start(limited);
  GenerationRequest request;
  request.prompt.assign(30, 4);
  request.sampling.max_tokens = 100;
  request.sampling.ignore_eos = true;
  const Answer answer = submit(*service, request).get();
  EXPECT_EQ(answer.ids.size(), 2U);
  EXPECT_EQ(answer.finish, FinishReason::kLength);
}

TEST_F(LocalServiceTest, APromptThatCannotFitIsRefusedWithBothNumbers) {
  WorkerOptions limited = options();
  limited.max_model_len = 32;
  const auto service = start(limited);
  GenerationRequest request;
  request.prompt.assign(32, 4);
  const SubmitResult result = service->submit(request, std::make_shared<AnswerCollector>());
  ASSERT_TRUE(result.error.has_value());
  EXPECT_EQ(result.error->kind, RequestError::Kind::kInvalid);
  EXPECT_THAT(result.error->message, HasSubstr("32 tokens"));
  EXPECT_EQ(result.error->param, "prompt");
}

TEST_F(LocalServiceTest, TokensOutsideTheVocabularyAreRefused) {
  const auto service = start(options());
  GenerationRequest request;
  request.prompt = {1, 512};
  const SubmitResult result = service->submit(request, std::make_shared<AnswerCollector>());
  ASSERT_TRUE(result.error.has_value());
  EXPECT_THAT(result.error->message, HasSubstr("512"));
}

TEST_F(LocalServiceTest, ScoringGivesTheSameBitsHoweverThePromptIsCut) {
  GenerationRequest request;
  std::mt19937 random(6);
  for (int token = 0; token < 150; ++token) {
    request.prompt.push_back(static_cast<std::int32_t>(3 + random() % 500));
  }
  request.sampling.max_tokens = 0;
  request.prompt_top = 3;
  request.keep_last_logits = true;
  std::vector<PromptScores> scores;
  for (const int budget : {512, 64, 7}) {
    WorkerOptions chunked = options();
    chunked.max_num_batched_tokens = budget;
    const auto service = start(chunked);
    scores.push_back(submit(*service, request).get().scores);
  }
  EXPECT_EQ(scores[0].logprobs.size(), 149U);
  EXPECT_EQ(scores[0].top.size(), 150U);
  EXPECT_EQ(scores[0].last_logits.size(), 512U);
  for (const PromptScores& other : scores) {
    EXPECT_EQ(other.logprobs, scores[0].logprobs);
    EXPECT_EQ(other.last_logits, scores[0].last_logits);
  }
}

TEST_F(LocalServiceTest, OptionsThatCannotBeMetAreNamed) {
  WorkerOptions wrong = options();
  wrong.block_size = 24;
  EXPECT_THROW(start(wrong), std::invalid_argument);
  wrong = options();
  wrong.kv_cache_memory_bytes = 40000;
  try {
    start(wrong);
    FAIL() << "started with a KV cache that is too small";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("kv_cache_memory_bytes"));
  }
}

TEST_F(LocalServiceTest, AfterDrainingBeginsNothingNewIsTaken) {
  const auto service = start(options());
  GenerationRequest request;
  request.prompt = {5};
  request.sampling.max_tokens = 3;
  auto running = submit(*service, request);
  service->begin_drain();
  const SubmitResult refused = service->submit(request, std::make_shared<AnswerCollector>());
  ASSERT_TRUE(refused.error.has_value());
  EXPECT_EQ(refused.error->kind, RequestError::Kind::kUnavailable);
  EXPECT_EQ(running.get().ids.size(), 3U);
}

TEST_F(LocalServiceTest, ACachedPrefixChangesNothingButTheWork) {
  for (const float penalty : {1.0f, 1.3f}) {
    std::array<std::vector<Answer>, 2> answers;
    std::array<ServiceMetrics, 2> metrics;
    for (const bool cached : {false, true}) {
      WorkerOptions with = options();
      with.enable_prefix_caching = cached;
      const auto service = start(with);
      answers[cached] = converse(
          [&](GenerationRequest request) { return submit(*service, std::move(request)); }, penalty);
      metrics[cached] = service->metrics();
    }
    EXPECT_EQ(answers[1], answers[0]);
    // Each turn stands behind 39 more tokens, of which the last was never put into the cache; pages are of 16.
    const std::array<int, 4> found = {0, 32, 64, 112};
    for (std::size_t turn = 0; turn < found.size(); ++turn) {
      EXPECT_EQ(answers[1][turn].num_cached_tokens, found[turn]);
      EXPECT_EQ(answers[0][turn].num_cached_tokens, 0);
    }
    EXPECT_EQ(metrics[1].prefix_cache_hits, 208U);
    EXPECT_EQ(metrics[0].prefix_cache_hits, 0U);
  }
}

TEST_F(LocalServiceTest, AScoredPromptIsComputedWhole) {
  const auto service = start(options());
  GenerationRequest request;
  request.prompt.assign(100, 7);
  request.sampling.max_tokens = 0;
  request.prompt_top = 2;
  const Answer first = submit(*service, request).get();
  const Answer second = submit(*service, request).get();
  EXPECT_EQ(second.num_cached_tokens, 0);
  EXPECT_EQ(second.scores.logprobs.size(), 99U);
  EXPECT_EQ(second.scores.logprobs, first.scores.logprobs);
}

}  // namespace
}  // namespace rigel
