// The same requests get the same answers whatever runs beside them and however the steps are cut.
//
// RIGEL_MIXES=1000 in the environment sets how many mixes are tried.

#include "tests/worker/request_mix.h"
#include "tests/worker/tiny_service.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

namespace rigel {
namespace {

using testing::Cancels;
using testing::kTinyPageBytes;
using testing::MixedAnswer;
using testing::MixedRequest;

#if defined(__SANITIZE_THREAD__)
constexpr int kShortRequests = 200;
constexpr std::uint32_t kMixesWithEveryEnd = 8;
#elif defined(__SANITIZE_ADDRESS__)
constexpr int kShortRequests = 1'000;
constexpr std::uint32_t kMixesWithEveryEnd = 20;
#else
constexpr int kShortRequests = 10'000;
constexpr std::uint32_t kMixesWithEveryEnd = 20;
#endif

/// The mixes to be tried: the first so many, or under a sanitizer a few, of which two need more pages than there are.
std::vector<std::uint32_t> mix_seeds() {
  const char* wanted = std::getenv("RIGEL_MIXES");
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  if (wanted == nullptr) {
    return {1, 3, 10, 20};
  }
#endif
  std::vector<std::uint32_t> seeds(
      static_cast<std::size_t>(wanted == nullptr ? 100 : std::max(std::atoi(wanted), 0)));
  std::iota(seeds.begin(), seeds.end(), 1U);
  return seeds;
}

/// A way to serve that must not show in any answer.
struct OptionSet {
  const char* name;
  Cancels cancels;
  void (*apply)(WorkerOptions&);
};

/// The first is what the others are compared with: each request alone, nobody cancelled.
constexpr OptionSet kOptionSets[] = {
    {"alone, in turn", Cancels::kIgnore,
     [](WorkerOptions& options) {
       options.max_num_seqs = 1;
       options.async_scheduling = false;
       options.enable_prefix_caching = false;
       options.enforce_eager = true;
     }},
    {"in company, in turn", Cancels::kObey,
     [](WorkerOptions& options) { options.async_scheduling = false; }},
    {"in company, one step ahead", Cancels::kObey, [](WorkerOptions&) {}},
    {"no captured steps", Cancels::kObey,
     [](WorkerOptions& options) { options.enforce_eager = true; }},
    {"captured while serving", Cancels::kObey,
     [](WorkerOptions& options) {
       options.capture = "lazy";
       options.piecewise_capture_sizes = {64};
     }},
    {"captured steps with padding, three slots", Cancels::kObey,
     [](WorkerOptions& options) {
       options.capture_sizes = {5, 16};
       options.graph_slots = 3;
     }},
    {"four steps a launch", Cancels::kObey,
     [](WorkerOptions& options) { options.steps_per_launch = 4; }},
    {"sixteen steps a launch, in turn, captured while serving, offloaded to the host",
     Cancels::kObey,
     [](WorkerOptions& options) {
       options.steps_per_launch = 16;
       options.async_scheduling = false;
       options.capture = "lazy";
       options.kv_cache_memory_bytes = 18 * kTinyPageBytes;
       options.swap_space_bytes = 64 * kTinyPageBytes;
     }},
    {"prompts packed into captured steps", Cancels::kObey,
     [](WorkerOptions& options) {
       options.prefill_capture_sizes = {8, 64, 512};
     }},
    {"prompts by captured blocks between attentions", Cancels::kObey,
     [](WorkerOptions& options) {
       options.piecewise_capture_sizes = {8, 64, 512};
     }},
    {"few pages, in turn", Cancels::kObey,
     [](WorkerOptions& options) {
       options.kv_cache_memory_bytes = 18 * kTinyPageBytes;
       options.async_scheduling = false;
     }},
    {"few pages, one step ahead", Cancels::kObey,
     [](WorkerOptions& options) { options.kv_cache_memory_bytes = 18 * kTinyPageBytes; }},
    {"few pages, offloaded to the host", Cancels::kObey,
     [](WorkerOptions& options) {
       options.kv_cache_memory_bytes = 18 * kTinyPageBytes;
       options.swap_space_bytes = 64 * kTinyPageBytes;
     }},
#if !defined(__SANITIZE_THREAD__)  // the same threads do the same with other numbers
    {"alone, one step ahead", Cancels::kIgnore,
     [](WorkerOptions& options) { options.max_num_seqs = 1; }},
    {"in company, in turn, nothing planned ahead", Cancels::kObey,
     [](WorkerOptions& options) {
       options.async_scheduling = false;
       options.preplan = false;
     }},
    {"in company, one step ahead, no prefix cache", Cancels::kObey,
     [](WorkerOptions& options) { options.enable_prefix_caching = false; }},
    {"captured steps of at most three lanes", Cancels::kObey,
     [](WorkerOptions& options) {
       options.capture_sizes = {1, 3};
     }},
    {"prompts packed, few pages, offloaded to the host", Cancels::kObey,
     [](WorkerOptions& options) {
       options.prefill_capture_sizes = {32};
       options.max_num_batched_tokens = 32;
       options.kv_cache_memory_bytes = 18 * kTinyPageBytes;
       options.swap_space_bytes = 64 * kTinyPageBytes;
     }},
    {"three rows, 20 tokens a step", Cancels::kObey,
     [](WorkerOptions& options) {
       options.max_num_seqs = 3;
       options.max_num_batched_tokens = 20;
     }},
    {"70 tokens a step, pages of 32", Cancels::kObey,
     [](WorkerOptions& options) {
       options.max_num_batched_tokens = 70;
       options.max_num_seqs = 12;
       options.block_size = 32;
     }},
#endif
};

class MixesTest : public testing::TinyServiceTest {
 protected:
  static const text::Tokenizer& tokenizer() {
    static const text::Tokenizer kTokenizer(
        testing::make_mix_vocabulary(files().config.vocab_size));
    return kTokenizer;
  }
  static std::unique_ptr<LocalService> start(void (*apply)(WorkerOptions&)) {
    WorkerOptions options;
    options.dtype = "float32";
    options.num_threads = 1;
    options.max_model_len = 256;
    options.max_num_seqs = 16;
    options.kv_cache_memory_bytes = 8 << 20;
    options.max_waiting = kShortRequests;
    apply(options);
    return start_local_service(files(), &tokenizer(), options, nullptr);
  }
  /// Waits until nothing is in use: what a step in flight holds comes back when it has completed.
  static void expect_everything_back(const LocalService& service, const char* name) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const auto in_use = [&service] {
      const ServiceMetrics metrics = service.metrics();
      return metrics.kv_cache_usage > 0 || metrics.num_running > 0 || metrics.num_waiting > 0;
    };
    while (in_use() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    EXPECT_FALSE(in_use()) << name << ": " << service.metrics().kv_cache_usage
                           << " of the pages and " << service.metrics().num_running
                           << " requests are left";
    EXPECT_EQ(service.num_unfinished(), 0) << name;
  }
};

/// The smallest request whose answer differs, described; empty: none does.
std::string smallest_difference(const std::vector<MixedRequest>& mix,
                                const std::vector<MixedAnswer>& answers,
                                const std::vector<MixedAnswer>& whole, Cancels cancels) {
  std::string smallest;
  std::size_t smallest_size = 0;
  for (std::size_t index = 0; index < mix.size(); ++index) {
    const std::string difference =
        testing::find_difference(mix[index], answers[index], whole[index], cancels);
    const std::size_t size = mix[index].request.prompt.size() + whole[index].ids.size();
    if (!difference.empty() && (smallest.empty() || size < smallest_size)) {
      smallest_size = size;
      smallest = "request " + std::to_string(index) + ": " + describe(mix[index]) + difference;
    }
  }
  return smallest;
}

/// A share of the ways, so that shares run side by side.
class WaysTest : public MixesTest, public ::testing::WithParamInterface<std::size_t> {};
constexpr std::size_t kNumShares = 2;
INSTANTIATE_TEST_SUITE_P(Share, WaysTest, ::testing::Range(std::size_t{0}, kNumShares));

/// A way to serve, serving.
struct ServingWay {
  const OptionSet* options;
  std::unique_ptr<LocalService> service;
};

TEST_P(WaysTest, EveryWayToServeGivesTheSameAnswers) {
  const auto alone = start(kOptionSets[0].apply);
  std::vector<ServingWay> ways;
  for (std::size_t way = 1 + GetParam(); way < std::size(kOptionSets); way += kNumShares) {
    ways.push_back({&kOptionSets[way], start(kOptionSets[way].apply)});
  }
  int num_bad_mixes = 0;
  for (const std::uint32_t seed : mix_seeds()) {
    if (num_bad_mixes == 3) {
      break;
    }
    const auto mix = testing::make_request_mix(seed, files().config.vocab_size);
    const auto whole = testing::run_mix(*alone, mix, kOptionSets[0].cancels);
    bool differs = false;
    for (const ServingWay& way : ways) {
      const auto answers = testing::run_mix(*way.service, mix, way.options->cancels);
      const std::string difference = smallest_difference(mix, answers, whole, way.options->cancels);
      EXPECT_EQ(difference, "") << "seed " << seed << ", " << way.options->name;
      differs = differs || !difference.empty();
    }
    num_bad_mixes += differs ? 1 : 0;
  }
  for (const ServingWay& way : ways) {
    expect_everything_back(*way.service, way.options->name);
    WorkerOptions applied;
    way.options->apply(applied);
    if (applied.kv_cache_memory_bytes != 0) {
      EXPECT_GT(way.service->metrics().num_preemptions, 0U)
          << way.options->name << ": the cache is not small enough";
    }
    if (applied.swap_space_bytes != 0) {
      EXPECT_GT(way.service->metrics().num_offloads, 0U) << "nobody waited on the host";
    }
  }
}

TEST_F(MixesTest, AMixHasEveryKindOfEnd) {
  const auto service = start([](WorkerOptions&) {});
  std::array<int, 4> ends{};
  int num_stop_strings = 0;
  for (std::uint32_t seed = 1; seed <= kMixesWithEveryEnd; ++seed) {
    const auto mix = testing::make_request_mix(seed, files().config.vocab_size);
    for (const MixedAnswer& answer : testing::run_mix(*service, mix, Cancels::kObey)) {
      ++ends[static_cast<std::size_t>(answer.finish)];
      num_stop_strings += answer.stop_string.empty() ? 0 : 1;
    }
  }
  EXPECT_GT(ends[static_cast<std::size_t>(FinishReason::kStop)], num_stop_strings);
  EXPECT_GT(ends[static_cast<std::size_t>(FinishReason::kLength)], 0);
  EXPECT_GT(ends[static_cast<std::size_t>(FinishReason::kCancelled)], 0);
  EXPECT_EQ(ends[static_cast<std::size_t>(FinishReason::kError)], 0);
  EXPECT_GT(num_stop_strings, 0);
}

TEST_F(MixesTest, ManyShortRequestsWithCancelsLeaveEveryPageAndRow) {
  const auto service = start([](WorkerOptions&) {});
  std::mt19937 random(11);
  std::vector<MixedRequest> requests(kShortRequests);
  for (MixedRequest& mixed : requests) {
    mixed.request.prompt.assign(1 + random() % 20, 5);
    mixed.request.sampling.max_tokens = static_cast<int>(1 + random() % 6);
    mixed.request.sampling.temperature = 0;
    mixed.request.sampling.ignore_eos = true;
    if (random() % 10 < 3) {
      mixed.request.sampling.max_tokens = 200;  // so that the cancel finds it running
      mixed.cancel_after = static_cast<int>(random() % 5);
    }
  }
  std::size_t num_cancelled = 0;
  for (const MixedAnswer& answer : testing::run_mix(*service, requests, Cancels::kObey)) {
    EXPECT_EQ(answer.error, "");
    num_cancelled += answer.finish == FinishReason::kCancelled ? 1 : 0;
  }
  EXPECT_GT(num_cancelled, requests.size() / 4);
  expect_everything_back(*service, "short requests");

  // Every row is there: as many requests as rows run at a time.
  std::vector<MixedRequest> all_rows(16);
  for (MixedRequest& mixed : all_rows) {
    mixed.request.prompt = {5};
    mixed.request.sampling.max_tokens = 200;
    mixed.request.sampling.ignore_eos = true;
    mixed.request.sampling.seed = 1;
  }
  std::int64_t most_running = 0;
  std::atomic<bool> ended = false;
  std::thread watch([&] {
    while (!ended) {
      most_running = std::max(most_running, service->metrics().num_running);
      std::this_thread::yield();
    }
  });
  std::ignore = testing::run_mix(*service, all_rows, Cancels::kIgnore);
  ended = true;
  watch.join();
  EXPECT_EQ(most_running, 16);
}

}  // namespace
}  // namespace rigel
