// The real language model as one node of a composite model: its requests get the tokens that it gives them alone.

#include "tests/worker/composite_llm_models.h"
#include "tests/worker/composite_worker.h"
#include "tests/worker/request_mix.h"
#include "tests/worker/tiny_service.h"
#include "worker/device_choice.h"

#include <gmock/gmock.h>

#include <random>

namespace rigel {
namespace {

using testing::CompositeAnswer;
using testing::kTinyPageBytes;
using testing::LlmPrompt;
using testing::MixedRequest;

class CompositeLlm : public testing::TinyServiceTest {
 protected:
  void TearDown() override { stop(); }

  static WorkerOptions options() {
    WorkerOptions options;
    options.dtype = "float32";
    options.num_threads = 1;
    options.max_model_len = 256;
    options.max_num_seqs = 8;
    options.max_num_batched_tokens = 24;  // prompts run in parts
    options.kv_cache_memory_bytes = 4 << 20;
    options.enable_prefix_caching = false;
    return options;
  }
  /// Prompts of 2 to 90 tokens; greedy and seeded, with penalties; ends by length, end token and stop token.
  static std::vector<MixedRequest> requests(int count) {
    std::mt19937 random(11);
    const auto upto = [&](std::uint32_t bound) { return static_cast<int>(random() % bound); };
    std::vector<MixedRequest> requests(static_cast<std::size_t>(count));
    for (std::size_t index = 0; index < requests.size(); ++index) {
      GenerationRequest& request = requests[index].request;
      for (int token = 2 + upto(index % 3 == 0 ? 90 : 12); token > 0; --token) {
        request.prompt.push_back(3 + upto(200));
      }
      SamplingParams& sampling = request.sampling;
      sampling.max_tokens = index % 5 == 4 ? 1 : 3 + upto(30);
      sampling.temperature = index % 2 == 0 ? 0.0F : 0.8F;
      sampling.seed = 100 + index;
      sampling.frequency_penalty = index % 4 == 1 ? 0.5F : 0.0F;
      sampling.ignore_eos = index % 3 == 1;
      if (index % 4 == 3) {
        for (int token = 0; token < 40; ++token) {
          sampling.stop_token_ids.push_back(upto(256));
        }
      }
    }
    return requests;
  }
  /// What the language model alone gives.
  static std::vector<std::vector<float>> tokens_alone(const std::vector<MixedRequest>& requests) {
    const auto service = start_local_service(files(), nullptr, options(), nullptr);
    std::vector<std::vector<float>> tokens;
    for (const auto& answer : testing::run_mix(*service, requests, testing::Cancels::kIgnore)) {
      EXPECT_EQ(answer.error, "");
      tokens.emplace_back(answer.ids.begin(), answer.ids.end());
    }
    return tokens;
  }

  void start(const WorkerOptions& options, LlmPrompt way) {
    stop();
    prompt = way;
    device = Device::open(device_options(options));
    testing::LlmComposite composite = testing::make_llm_composite(
        *device, files(), language_model_options(options, device->is_cuda()), way);
    kv_cache = composite.kv_cache;
    llm = composite.model.engines.front().get();
    dispatcher = std::make_unique<Dispatcher>(nullptr, [](RequestId, std::int32_t) {});
    worker = std::make_unique<Worker>(
        std::move(composite.model),
        WorkerConfig{.one_step_ahead = options.async_scheduling,
                     .num_rows = options.max_num_seqs,
                     .max_num_batched_tokens = options.max_num_batched_tokens,
                     .max_length = composite.max_length,
                     .eos_ids = {files().config.eos_ids.begin(), files().config.eos_ids.end()}},
        *dispatcher);
  }
  std::future<CompositeAnswer> submit(const GenerationRequest& request) {
    std::future<CompositeAnswer> answer;
    const RequestId id{++num_submitted};
    const auto tensor_of = [](std::span<const std::int32_t> tokens) {
      return std::vector<Tensor>{Tensor::copy_of(tokens)};
    };
    const std::span<const std::int32_t> tokens = request.prompt;
    const std::size_t num_seen = prompt == LlmPrompt::kBoth ? tokens.size() / 2 : tokens.size();
    GenerationRequest given;
    given.sampling = request.sampling;
    given.inputs.push_back({"encoder", "tokens", tensor_of(tokens.first(num_seen))});
    if (prompt == LlmPrompt::kBoth) {
      given.inputs.push_back({"LLM", "text_inputs", tensor_of(tokens.subspan(num_seen))});
    }
    dispatcher->open({.id = id, .listener = testing::collect_answer(answer), .stop = {}});
    worker->submit(id, std::move(given));
    return answer;
  }
  /// Steps that were replayed; none that could have been was not. Those with prompts cannot where one brings embeddings, and are
  /// counted as declined.
  [[nodiscard]] std::uint64_t num_replays() const {
    worker->stop();
    for (const GraphMiss& miss : llm->graph_misses().all()) {
      EXPECT_NE(miss.walk, LanguageModelNames::kDecode);
      EXPECT_EQ(miss.reason, GraphMissReason::kDeclined);
    }
    std::uint64_t count = 0;
    if (llm->captures() != nullptr) {
      const GraphRunner& runner = llm->captures()->runner();
      for (std::size_t bucket = 0; bucket < runner.buckets().size(); ++bucket) {
        count += runner.num_replays(bucket);
      }
    }
    return count;
  }
  [[nodiscard]] bool has_declined(WalkId walk) const {
    const std::vector<GraphMiss>& misses = llm->graph_misses().all();
    return std::ranges::find(misses, walk, &GraphMiss::walk) != misses.end();
  }
  static void check(CompositeAnswer answer, const std::vector<float>& tokens) {
    EXPECT_EQ(answer.finish, FinishReason::kStop) << answer.error;
    std::vector<float> given;
    for (const std::vector<float>& token : answer.values["new_token"]) {
      given.insert(given.end(), token.begin(), token.end());
    }
    EXPECT_EQ(given, tokens);
    std::vector<float> heard;
    for (const std::vector<float>& chunk : answer.values["heard"]) {
      heard.insert(heard.end(), chunk.begin(), chunk.end());
    }
    EXPECT_EQ(heard, tokens) << "what the stream has carried";
  }
  void stop() {
    if (worker != nullptr) {
      worker->stop();
      EXPECT_EQ(kv_cache->arena().num_free() + kv_cache->arena().num_retiring(),
                kv_cache->arena().capacity());
    }
    dispatcher.reset();
    worker.reset();
    device.reset();
  }

  LlmPrompt prompt = LlmPrompt::kEmbeddings;
  std::unique_ptr<Device> device;
  std::unique_ptr<Dispatcher> dispatcher;
  std::unique_ptr<Worker> worker;
  KvCache* kv_cache = nullptr;
  const Engine* llm = nullptr;
  std::uint64_t num_submitted = 0;
};

TEST_F(CompositeLlm, T_WK_1_its_tokens_are_those_of_the_language_model_alone) {
  const std::vector<MixedRequest> mix = requests(10);
  const std::vector<std::vector<float>> expected = tokens_alone(mix);
  for (const bool ahead : {true, false}) {
    for (const bool eager : {false, true}) {
      WorkerOptions served = options();
      served.async_scheduling = ahead;
      served.enforce_eager = eager;
      served.prefill_capture_sizes = {24};
      start(served, eager == ahead ? LlmPrompt::kBoth : LlmPrompt::kEmbeddings);
      std::vector<std::future<CompositeAnswer>> answers;
      for (const MixedRequest& mixed : mix) {
        answers.push_back(submit(mixed.request));
      }
      for (std::size_t index = 0; index < mix.size(); ++index) {
        SCOPED_TRACE(index);
        check(answers[index].get(), expected[index]);
      }
      EXPECT_EQ(num_replays() > 0, !eager);
      EXPECT_EQ(has_declined(LanguageModelNames::kMixed), !eager)
          << "whether prompts ran beside decode lanes, as far as misses tell";
    }
  }
}

TEST_F(CompositeLlm, B_65_alone_it_gives_the_same_and_a_prompts_first_part_gives_nothing) {
  const std::vector<MixedRequest> mix = requests(6);
  const std::vector<std::vector<float>> expected = tokens_alone(mix);
  for (const LlmPrompt way : {LlmPrompt::kEmbeddings, LlmPrompt::kBoth}) {
    start(options(), way);
    for (std::size_t index = 0; index < mix.size(); ++index) {
      SCOPED_TRACE(index);
      check(submit(mix[index].request).get(), expected[index]);
    }
  }
}

/// Without and with room on the host for what they lose.
class CompositeLlmPages : public CompositeLlm, public ::testing::WithParamInterface<bool> {};

TEST_P(CompositeLlmPages, T_WK_6_requests_that_lose_their_pages_get_the_same_tokens) {
  std::vector<MixedRequest> mix = requests(12);
  for (MixedRequest& mixed : mix) {
    mixed.request.sampling.max_tokens += 20;
  }
  const std::vector<std::vector<float>> expected = tokens_alone(mix);
  WorkerOptions served = options();
  served.max_model_len = 160;
  served.kv_cache_memory_bytes = 12 * kTinyPageBytes;
  served.swap_space_bytes = GetParam() ? 64 * kTinyPageBytes : 0;
  for (const LlmPrompt way : {LlmPrompt::kEmbeddings, LlmPrompt::kBoth}) {
    start(served, way);
    std::vector<std::future<CompositeAnswer>> answers;
    for (const MixedRequest& mixed : mix) {
      answers.push_back(submit(mixed.request));
    }
    for (std::size_t index = 0; index < mix.size(); ++index) {
      SCOPED_TRACE(index);
      check(answers[index].get(), expected[index]);
    }
    const ServiceMetrics metrics = worker->metrics().snapshot();
    EXPECT_GT(metrics.num_preemptions, 0U);
    EXPECT_EQ(metrics.num_offloads > 0, GetParam());
  }
}

TEST_P(CompositeLlmPages, B_64_who_never_fits_fails_alone) {
  std::vector<MixedRequest> mix = requests(2);
  const std::vector<std::vector<float>> expected = tokens_alone(mix);
  WorkerOptions served = options();
  served.max_model_len = 160;
  served.kv_cache_memory_bytes = 12 * kTinyPageBytes;
  served.swap_space_bytes = GetParam() ? 64 * kTinyPageBytes : 0;
  start(served, LlmPrompt::kEmbeddings);
  GenerationRequest too_long;
  too_long.prompt.assign(160, 5);
  auto refused = submit(too_long);
  auto first = submit(mix[0].request);
  const CompositeAnswer answer = refused.get();
  EXPECT_EQ(answer.finish, FinishReason::kError);
  EXPECT_THAT(answer.error, ::testing::HasSubstr("the context holds 160"));
  check(first.get(), expected[0]);
  check(submit(mix[1].request).get(), expected[1]);
}

TEST_P(CompositeLlmPages, B_64_who_waits_for_pages_outlives_who_is_stuck_with_them) {
  MixedRequest waiting = requests(1).front();
  waiting.request.prompt.assign(140, 7);
  const std::vector<std::vector<float>> expected = tokens_alone({waiting});
  WorkerOptions served = options();
  served.max_model_len = 176;
  served.kv_cache_memory_bytes = 12 * kTinyPageBytes;
  served.swap_space_bytes = GetParam() ? 64 * kTinyPageBytes : 0;
  start(served, LlmPrompt::kBoth);
  std::future<CompositeAnswer> stuck;
  GenerationRequest lacks_its_text;
  const std::vector<std::int32_t> tokens(100, 5);
  lacks_its_text.inputs = {
      {"encoder", "tokens", {Tensor::copy_of(std::span<const std::int32_t>(tokens))}}};
  const RequestId id{++num_submitted};
  dispatcher->open({.id = id, .listener = testing::collect_answer(stuck), .stop = {}});
  worker->submit(id, std::move(lacks_its_text));
  auto waits = submit(waiting.request);
  const CompositeAnswer answer = stuck.get();
  EXPECT_THAT(answer.error, ::testing::HasSubstr("nothing brings input 'text_inputs'"));
  check(waits.get(), expected[0]);
}

INSTANTIATE_TEST_SUITE_P(HostPages, CompositeLlmPages, ::testing::Bool());

TEST_F(CompositeLlm, T_WK_3_cancelled_requests_leave_their_pages_to_the_others) {
  const std::vector<MixedRequest> mix = requests(12);
  const std::vector<std::vector<float>> expected = tokens_alone(mix);
  WorkerOptions served = options();
  served.max_model_len = 160;
  served.kv_cache_memory_bytes = 12 * kTinyPageBytes;
  start(served, LlmPrompt::kBoth);
  std::vector<std::future<CompositeAnswer>> answers;
  for (std::size_t index = 0; index < mix.size(); ++index) {
    answers.push_back(submit(mix[index].request));
    if (index % 3 == 2) {
      worker->cancel(RequestId{num_submitted - 1});
    }
  }
  for (std::size_t index = 0; index < mix.size(); ++index) {
    CompositeAnswer answer = answers[index].get();
    if (answer.finish == FinishReason::kCancelled) {
      EXPECT_EQ(index % 3, 1U);
    } else {
      SCOPED_TRACE(index);
      check(std::move(answer), expected[index]);
    }
  }
}

}  // namespace
}  // namespace rigel
