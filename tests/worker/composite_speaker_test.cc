// A node that one request comes to several times, with caches of its own: it says what the host says, whatever ran ahead of a
// stop, alone and in company, captured and eager, with pages lost and requests cancelled.

#include "tests/worker/composite_speaker.h"

#include "tests/worker/composite_worker.h"

#include <gtest/gtest.h>

#include <random>

namespace rigel {
namespace {

using testing::CompositeAnswer;
using testing::SpeakerMath;
using testing::SpeakerRequest;

class CompositeSpeaker : public ::testing::Test {
 protected:
  static constexpr std::int32_t kRows = 6;

  void SetUp() override {
    if (!Device::available() || Device::open({})->is_cuda()) {
      GTEST_SKIP() << "its model runs on the virtual device";
    }
    std::mt19937 random(5);
    const auto upto = [&](std::uint32_t bound) {
      return static_cast<std::int32_t>(random() % bound);
    };
    for (int index = 0; index < 12; ++index) {
      SpeakerRequest& request = requests.emplace_back();
      for (int token = 1 + upto(index % 3 == 0 ? 24 : 6); token > 0; --token) {
        request.tokens.push_back(upto(101));
      }
      for (int key = 1 + upto(8); key > 0; --key) {
        request.memory.push_back(static_cast<float>(upto(50)));
      }
      for (int token = 1 + upto(7); token > 0; --token) {
        request.more.push_back(upto(101));
      }
    }
  }
  void TearDown() override { stop(); }

  void start(bool one_step_ahead, bool captured,
             const testing::SpeakerOptions& options = {.num_rows = kRows, .num_pages = 160}) {
    stop();
    DeviceOptions device_options;
    device_options.mode = DeviceMode::kThreaded;
    device_options.order = order;
    device = Device::open(device_options);
    testing::SpeakerModel speaker = testing::make_speaker_model(*device, script, options);
    history = speaker.history;
    keys = speaker.keys;
    engine = speaker.model.engines.front().get();
    if (captured) {
      engine->capture_steps({.staging_bytes = 16 * 1024}).capture_all();
    }
    dispatcher = std::make_unique<Dispatcher>(nullptr, [](RequestId, std::int32_t) {});
    worker = std::make_unique<Worker>(std::move(speaker.model),
                                      WorkerConfig{.one_step_ahead = one_step_ahead,
                                                   .num_rows = kRows,
                                                   .max_num_batched_tokens = 9,
                                                   .max_length = 90,
                                                   .eos_ids = {}},
                                      *dispatcher);
  }
  void stop() {
    if (worker != nullptr) {
      worker->stop();
      for (const KvCache* cache : {static_cast<const KvCache*>(history), keys}) {
        EXPECT_EQ(cache->arena().num_free() + cache->arena().num_retiring(),
                  cache->arena().capacity());
      }
    }
    dispatcher.reset();
    worker.reset();
  }
  std::future<CompositeAnswer> submit(const SpeakerRequest& given) {
    std::future<CompositeAnswer> answer;
    const RequestId id{++num_submitted};
    GenerationRequest request;
    request.sampling.seed = num_submitted;
    request.inputs = {
        {"speaker", "tokens", {Tensor::copy_of(std::span<const std::int32_t>(given.tokens))}},
        {"speaker", "memory", {Tensor::copy_of(std::span<const float>(given.memory))}},
        {"speaker", "more", {Tensor::copy_of(std::span<const std::int32_t>(given.more))}}};
    dispatcher->open({.id = id, .listener = testing::collect_answer(answer), .stop = {}});
    worker->submit(id, std::move(request));
    return answer;
  }
  static std::vector<float> said(CompositeAnswer answer) {
    EXPECT_EQ(answer.finish, FinishReason::kStop) << answer.error;
    std::vector<float> tokens;
    for (const std::vector<float>& token : answer.values["said"]) {
      tokens.insert(tokens.end(), token.begin(), token.end());
    }
    return tokens;
  }
  /// Steps in which somebody speaks, one request at a time.
  std::size_t num_spoken(bool ahead, bool has_state = false) {
    const std::size_t before = script.count("speak");
    start(ahead, /*captured=*/false, {.num_rows = kRows, .num_pages = 160, .has_state = has_state});
    for (const SpeakerRequest& request : requests) {
      EXPECT_EQ(said(submit(request).get()), SpeakerMath::talk(request));
    }
    worker->stop();
    return script.count("speak") - before;
  }
  void check_company() {
    std::vector<std::future<CompositeAnswer>> answers;
    for (const SpeakerRequest& request : requests) {
      answers.push_back(submit(request));
    }
    for (std::size_t index = 0; index < requests.size(); ++index) {
      EXPECT_EQ(said(answers[index].get()), SpeakerMath::talk(requests[index])) << index;
    }
  }

  std::vector<SpeakerRequest> requests;
  testing::CompositeScript script;
  DeviceOrder order = DeviceOrder::kAscending;
  std::unique_ptr<Device> device;
  std::unique_ptr<Dispatcher> dispatcher;
  std::unique_ptr<Worker> worker;
  Engine* engine = nullptr;
  KvCache* history = nullptr;
  const KvCache* keys = nullptr;
  std::uint64_t num_submitted = 0;
};

TEST_F(CompositeSpeaker, T_WK_2_a_step_that_a_stop_has_overtaken_leaves_no_trace_in_the_next_walk) {
  const std::size_t in_turn = num_spoken(/*ahead=*/false);
  EXPECT_GT(num_spoken(/*ahead=*/true), in_turn) << "no step ahead was for nothing";
}

TEST_F(CompositeSpeaker, T_WK_2_nobody_runs_ahead_of_a_stop_that_a_state_would_not_forget) {
  const std::size_t anywhere = num_spoken(/*ahead=*/true);
  const std::size_t at_the_end = num_spoken(/*ahead=*/true, /*has_state=*/true);
  EXPECT_LT(at_the_end, anywhere) << "in the first loop, too";
  EXPECT_GT(at_the_end, num_spoken(/*ahead=*/false)) << "in the last loop it may";
}

TEST_F(CompositeSpeaker, T_WK_1_in_company_everybody_says_the_same_captured_and_eager) {
  for (const bool ahead : {false, true}) {
    for (const bool captured : {false, true}) {
      order = ahead ? DeviceOrder::kRandom : DeviceOrder::kDescending;
      start(ahead, captured);
      check_company();
      worker->stop();  // from here on its engine is ours
      EXPECT_EQ(engine->captures() != nullptr, captured);
      EXPECT_TRUE(engine->graph_misses().all().empty() || !captured);
    }
  }
}

/// Two loops go on in one step, and two walks bring tokens.
TEST_F(CompositeSpeaker, T_WK_1_hearing_and_talking_in_one_step_change_nothing) {
  for (const bool ahead : {false, true}) {
    for (const bool captured : {false, true}) {
      const std::size_t before = script.count("both");
      start(ahead, captured, {.num_rows = kRows, .num_pages = 160, .combines = true});
      check_company();
      EXPECT_GT(script.count("both"), before);
      worker->stop();  // from here on its engine is ours
      EXPECT_TRUE(engine->graph_misses().all().empty() || !captured);
    }
  }
}

TEST_F(CompositeSpeaker, T_WK_6_whoever_loses_its_pages_to_the_host_says_the_same) {
  for (const bool ahead : {false, true}) {
    for (const bool combines : {false, true}) {
      start(ahead, /*captured=*/true,
            {.num_rows = kRows, .num_pages = 19, .num_host_pages = 120, .combines = combines});
      check_company();
      EXPECT_GT(worker->metrics().snapshot().num_offloads, 0U);
    }
  }
}

TEST_F(CompositeSpeaker, T_WK_3_cancelled_requests_leave_their_pages_and_keys) {
  start(/*one_step_ahead=*/true, /*captured=*/true);
  std::vector<std::future<CompositeAnswer>> answers;
  for (const SpeakerRequest& request : requests) {
    answers.push_back(submit(request));
    if (num_submitted % 3 == 0) {
      worker->cancel(RequestId{num_submitted - 1});
    }
  }
  for (std::size_t index = 0; index < requests.size(); ++index) {
    CompositeAnswer answer = answers[index].get();
    if (answer.finish == FinishReason::kCancelled) {
      EXPECT_EQ(index % 3, 1U);
    } else {
      EXPECT_EQ(said(std::move(answer)), SpeakerMath::talk(requests[index])) << index;
    }
  }
}

}  // namespace
}  // namespace rigel
