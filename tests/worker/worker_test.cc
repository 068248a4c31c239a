// The worker's loop around a scripted model: what it launches when, what it wastes, and who fails with whom.

#include "tests/worker/scripted_worker.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <stdexcept>
#include <thread>

namespace rigel {
namespace {

using testing::Answer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ScriptedWorkerTest;

using WorkerLoop = ScriptedWorkerTest;

TEST_F(WorkerLoop, T_WK_1_a_step_is_launched_before_the_one_in_front_has_been_read) {
  script.hold_device_after(0);
  start();
  auto answer = submit(1, 3, 3);
  script.wait_for("launch", 2);  // although the device has not run the first
  script.release_device();
  EXPECT_EQ(answer.get().ids, tokens_of(1, 3));
  worker->stop();
  EXPECT_THAT(script.events(), ElementsAre("launch 1", "launch 1", "stop check", "launch 1",
                                           "stop check", "stop check"));
}

TEST_F(WorkerLoop, T_WK_1_without_running_ahead_a_step_is_read_before_the_next_is_launched) {
  start({.one_step_ahead = false});
  EXPECT_EQ(submit(1, 3, 3).get().ids, tokens_of(1, 3));
  worker->stop();
  EXPECT_THAT(script.events(), ElementsAre("launch 1", "stop check", "launch 1", "stop check",
                                           "launch 1", "stop check"));
}

TEST_F(WorkerLoop, T_WK_2_a_stop_token_wastes_one_row_step_and_a_length_none) {
  start();
  SamplingParams stops;
  stops.stop_token_ids = {1002};
  const Answer stopped = submit(1, 3, 50, stops).get();
  EXPECT_EQ(stopped.ids, tokens_of(1, 3));
  EXPECT_EQ(stopped.finish, FinishReason::kStop);
  EXPECT_EQ(submit(2, 3, 7).get().ids, tokens_of(2, 7));
  EXPECT_EQ(submit(3, 250, 50).get().ids, tokens_of(3, 6));  // the context limit
  worker->stop();
  EXPECT_EQ(wasted(WasteReason::kStopToken), 1);
  EXPECT_EQ(wasted(WasteReason::kLength), 0);
  EXPECT_EQ(wasted(WasteReason::kStopString), 0);
}

TEST_F(WorkerLoop, T_WK_2_a_stop_token_wastes_nothing_without_running_ahead) {
  start({.one_step_ahead = false});
  SamplingParams stops;
  stops.stop_token_ids = {1002};
  EXPECT_EQ(submit(1, 3, 50, stops).get().ids, tokens_of(1, 3));
  worker->stop();
  EXPECT_EQ(wasted(WasteReason::kStopToken), 0);
}

/// One token a letter.
text::TokenizerSpec letter_tokens() {
  text::TokenizerSpec spec;
  spec.model = text::TokenizerModel::kByteLevelBpe;
  spec.pre = "gpt-2";
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    spec.tokens.emplace_back(1, letter);
    spec.types.push_back(text::TokenType::kNormal);
  }
  return spec;
}

TEST_F(WorkerLoop, T_WK_2_a_stop_string_wastes_at_most_two_row_steps) {
  const text::Tokenizer tokenizer(letter_tokens());
  script.token = [](std::uint64_t, std::int32_t count) { return count % 26; };
  // The device runs a step when the text of the one before has been looked at, which is the latest that a device with steps
  // longer than a delivery would do it.
  std::uint64_t num_allowed = 1;
  script.hold_device_after(num_allowed);
  on_output = [&] { script.hold_device_after(++num_allowed); };
  after_stop_string = [&] { script.release_device(); };
  start({.tokenizer = &tokenizer});
  SamplingParams sampling;
  sampling.stop = {"de"};
  const Answer answer = submit(1, 3, 100, sampling).get();
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  EXPECT_EQ(answer.ids.size(), 5U);
  EXPECT_EQ(submit(2, 3, 1).get().finish, FinishReason::kLength);  // whose letter comes later
  worker->stop();
  EXPECT_GE(wasted(WasteReason::kStopString), 1);
  EXPECT_LE(wasted(WasteReason::kStopString), 2);
  EXPECT_EQ(wasted(WasteReason::kStopToken), 0);
}

TEST_F(WorkerLoop, T_WK_2_a_stop_string_wastes_no_more_where_listeners_are_slower_than_steps) {
  const text::Tokenizer tokenizer(letter_tokens());
  script.token = [](std::uint64_t, std::int32_t count) { return count % 26; };
  on_output = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  start({.tokenizer = &tokenizer});
  SamplingParams sampling;
  sampling.stop = {"lm"};
  EXPECT_EQ(submit(1, 3, 100, sampling).get().ids.size(), 13U);
  EXPECT_EQ(submit(2, 3, 1).get().finish, FinishReason::kLength);  // whose letter comes later
  worker->stop();
  EXPECT_LE(wasted(WasteReason::kStopString), 2);
  const ServiceMetrics metrics = worker->metrics().snapshot();
  const auto rows = [&metrics](SpeculativeRow kind) {
    return metrics.speculative_rows[static_cast<std::size_t>(kind)];
  };
  EXPECT_GE(rows(SpeculativeRow::kContinuing), 11U);
  EXPECT_EQ(rows(SpeculativeRow::kDropped), 0U);
}

TEST_F(WorkerLoop, T_WK_3_a_request_that_is_cancelled_during_a_step_leaves_the_others_alone) {
  script.hold_device_after(1);
  start();
  auto first = submit(1, 20, 6);
  auto second = submit(2, 20, 6);
  script.wait_for("launch", 2);
  cancel(1);
  script.release_device();
  const Answer cancelled = first.get();
  EXPECT_EQ(cancelled.finish, FinishReason::kCancelled);
  EXPECT_LT(cancelled.ids.size(), 6U);
  EXPECT_EQ(second.get().ids, tokens_of(2, 6));
  stop_and_check_pages();
  EXPECT_GE(wasted(WasteReason::kCancelled), 1);
  EXPECT_LE(wasted(WasteReason::kCancelled), 2);
}

TEST_F(WorkerLoop, T_WK_5_a_row_that_drops_out_of_a_step_leaves_the_order_of_the_others) {
  script.on_hook = [](const std::string& hook, const std::vector<std::uint64_t>& seeds) {
    if (hook == "prepare" && seeds.front() == 2) {
      throw std::runtime_error("no such voice");
    }
  };
  script.hold_device_after(0);
  start();
  auto opener = submit(9, 2, 4);
  script.wait_for("launch", 2);  // the three below are read together
  auto first = submit(1, 3, 4);
  auto second = submit(2, 3, 4);
  auto third = submit(3, 3, 4);
  script.release_device();
  EXPECT_EQ(first.get().ids, tokens_of(1, 4));
  const Answer dropped = second.get();
  EXPECT_EQ(dropped.finish, FinishReason::kError);
  EXPECT_THAT(dropped.error, HasSubstr("no such voice"));
  EXPECT_EQ(third.get().ids, tokens_of(3, 4));
  EXPECT_EQ(opener.get().ids, tokens_of(9, 4));
  stop_and_check_pages();
}

TEST_F(WorkerLoop, T_WK_6_requests_that_lose_their_pages_start_over_with_the_same_tokens) {
  start({.num_pages = 9});  // 8 pages, 128 tokens; each request grows to 48
  std::vector<std::future<Answer>> answers;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    answers.push_back(submit(seed, 10, 38));
  }
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    EXPECT_EQ(answers[seed - 1].get().ids, tokens_of(seed, 38)) << seed;
  }
  EXPECT_GT(worker->metrics().snapshot().num_preemptions, 0U);
  stop_and_check_pages();
}

TEST_F(WorkerLoop, B_12_a_request_whose_step_was_refused_is_scheduled_again) {
  // Two pages for two requests: what refuses the second one's growth is the first, which runs to its end.
  start({.num_rows = 2, .num_pages = 4});
  auto first = submit(1, 14, 30);
  auto second = submit(2, 14, 30);
  EXPECT_EQ(first.get().ids, tokens_of(1, 30));
  EXPECT_EQ(second.get().ids, tokens_of(2, 30));
  stop_and_check_pages();
}

TEST_F(WorkerLoop, B_64_a_request_that_can_never_fit_fails_alone) {
  start({.num_rows = 2, .num_pages = 4, .max_length = 256});  // 3 pages, 48 tokens
  auto huge = submit(1, 40, 100);
  auto fits = submit(2, 4, 20);
  const Answer answer = huge.get();
  EXPECT_EQ(answer.finish, FinishReason::kError);
  EXPECT_THAT(answer.error, HasSubstr("KV cache"));
  EXPECT_EQ(fits.get().ids, tokens_of(2, 20));
  stop_and_check_pages();
}

class FailingHook : public ScriptedWorkerTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(FailingHook, T_WK_7_fails_those_it_touches_once_and_nobody_later) {
  bool has_thrown = false;
  script.on_hook = [&](const std::string& hook, const std::vector<std::uint64_t>& seeds) {
    if (!has_thrown && hook == GetParam() && std::ranges::count(seeds, 2U) > 0) {
      has_thrown = true;
      throw std::runtime_error("broken");
    }
  };
  const std::string hook = GetParam();
  script.batches_stop_check = hook != "check_stop";
  start();
  const Answer failed = submit(2, 3, 5).get();
  if (hook == "check_stop_batched") {
    EXPECT_EQ(failed.ids, tokens_of(2, 5));  // each request is asked alone
  } else {
    EXPECT_EQ(failed.finish, FinishReason::kError);
    EXPECT_THAT(failed.error, HasSubstr("broken"));
  }
  EXPECT_TRUE(has_thrown);
  EXPECT_EQ(submit(3, 3, 5).get().ids, tokens_of(3, 5));
  EXPECT_TRUE(worker->healthy());
  stop_and_check_pages();
}

INSTANTIATE_TEST_SUITE_P(EveryHook, FailingHook,
                         ::testing::Values("prepare", "declare", "preprocess", "forward",
                                           "check_stop_batched", "check_stop"));

TEST_F(WorkerLoop, T_WK_7_a_failing_stop_check_fails_its_request_alone) {
  script.on_hook = [](const std::string& hook, const std::vector<std::uint64_t>& seeds) {
    if (hook == "check_stop" && seeds.front() == 2) {
      throw std::runtime_error("broken");
    }
  };
  script.batches_stop_check = false;
  start();
  auto first = submit(1, 3, 5);
  auto second = submit(2, 3, 5);
  EXPECT_EQ(first.get().ids, tokens_of(1, 5));
  EXPECT_EQ(second.get().finish, FinishReason::kError);
  stop_and_check_pages();
}

TEST_F(WorkerLoop, B_29_a_failure_is_forgotten_with_its_request) {
  script.on_hook = [](const std::string& hook, const std::vector<std::uint64_t>& seeds) {
    if (hook == "prepare" && seeds.front() == 1) {
      throw std::runtime_error("broken");
    }
  };
  start({.num_rows = 1});
  auto failed = submit(1, 3, 5);
  cancel(1);
  cancel(1);
  EXPECT_NE(failed.get().finish, FinishReason::kLength);
  EXPECT_EQ(submit(2, 3, 5).get().ids, tokens_of(2, 5)) << "the row's next owner";
  stop_and_check_pages();
}

TEST_F(WorkerLoop, B_31_a_batch_that_failed_is_not_run_again) {
  int num_thrown = 0;
  script.on_hook = [&](const std::string& hook, const std::vector<std::uint64_t>& seeds) {
    if (hook == "forward" && seeds.front() == 1) {
      ++num_thrown;
      throw std::runtime_error("broken");
    }
  };
  start();
  EXPECT_EQ(submit(1, 3, 5).get().finish, FinishReason::kError);
  EXPECT_EQ(submit(2, 3, 5).get().ids, tokens_of(2, 5));
  worker->stop();
  EXPECT_EQ(num_thrown, 1);
}

TEST_F(WorkerLoop, B_57_a_request_cancelled_while_it_decodes_leaves_the_steps_in_flight) {
  start({.num_rows = 1, .num_pages = 300, .max_length = 4096});
  auto endless = submit(1, 3, 4000);
  script.wait_for("launch", 20);
  cancel(1);
  EXPECT_EQ(endless.get().finish, FinishReason::kCancelled);
  EXPECT_EQ(submit(2, 3, 4).get().ids, tokens_of(2, 4)) << "the row is free";
  stop_and_check_pages();
}

TEST_F(WorkerLoop, T_WK_10_a_step_whose_requests_have_all_stopped_is_read_and_forgotten) {
  start();
  SamplingParams stops;
  stops.stop_token_ids = {1002, 2002};
  auto first = submit(1, 3, 50, stops);
  auto second = submit(2, 3, 50, stops);
  EXPECT_EQ(first.get().ids, tokens_of(1, 3));
  EXPECT_EQ(second.get().ids, tokens_of(2, 3));
  EXPECT_EQ(submit(3, 3, 5).get().ids, tokens_of(3, 5));
  EXPECT_EQ(wasted(WasteReason::kStopToken), 2);
  stop_and_check_pages();
}

TEST_F(WorkerLoop, T_WK_13_a_row_given_on_while_its_step_is_in_flight_does_not_mix_the_owners) {
  script.hold_device_after(1);
  start({.num_rows = 1});
  auto first = submit(1, 3, 20);
  script.wait_for("launch 1", 2);
  auto second = submit(2, 3, 6);
  cancel(1);
  script.release_device();
  EXPECT_EQ(first.get().finish, FinishReason::kCancelled);
  EXPECT_EQ(second.get().ids, tokens_of(2, 6));
  stop_and_check_pages();
}

TEST_F(WorkerLoop, T_WK_14_senders_of_every_kind_at_once) {
  start({.num_rows = 3, .num_pages = 12});
  constexpr std::uint64_t kPerThread = 60;
  std::vector<std::future<Answer>> answers(3 * kPerThread);
  std::vector<std::thread> senders;
  for (std::uint64_t sender = 0; sender < 3; ++sender) {
    senders.emplace_back([&, sender] {
      for (std::uint64_t index = 0; index < kPerThread; ++index) {
        const std::uint64_t seed = 1 + sender * kPerThread + index;
        answers[seed - 1] = submit(seed, 1 + static_cast<std::int32_t>(seed % 20),
                                   1 + static_cast<std::int32_t>(seed % 9));
        if (seed % 3 == 0) {
          cancel(seed);
        }
        static_cast<void>(worker->metrics().snapshot());
      }
    });
  }
  for (std::thread& sender : senders) {
    sender.join();
  }
  for (std::uint64_t seed = 1; seed <= answers.size(); ++seed) {
    const Answer answer = answers[seed - 1].get();
    if (answer.finish == FinishReason::kLength) {
      EXPECT_EQ(answer.ids, tokens_of(seed, 1 + static_cast<std::int32_t>(seed % 9)));
    } else {
      EXPECT_EQ(answer.finish, FinishReason::kCancelled);
    }
  }
  stop_and_check_pages();
}

TEST_F(WorkerLoop, C_4_phase_histograms_are_read_while_the_worker_writes_them) {
  start({.num_pages = 300, .max_length = 4096});
  auto answer = submit(1, 3, 300);
  while (answer.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    for (const auto& [phase, histogram] : worker->metrics().snapshot().host_step_seconds) {
      std::uint64_t sum = 0;
      for (const std::uint64_t count : histogram.counts) {
        sum += count;
      }
      ASSERT_EQ(sum, histogram.count) << phase;
    }
  }
  worker->stop();
  const auto metrics = worker->metrics().snapshot();
  EXPECT_EQ(metrics.host_step_seconds.back().first, "total");
  EXPECT_GE(metrics.host_step_seconds.back().second.count, 300U);
  EXPECT_GT(metrics.host_step_seconds.back().second.sum, 0.0);
}

TEST_F(WorkerLoop, TheDeviceIsIdleBetweenStepsOnlyWhereNoStepWasQueued) {
  start();
  EXPECT_EQ(submit(1, 3, 20).get().ids.size(), 20U);
  worker->stop();
  const Histogram ahead = worker->metrics().snapshot().gpu_idle_between_steps_seconds;
  EXPECT_EQ(ahead.count, 19U);  // the first step has none before it
}

TEST_F(WorkerLoop, WithoutRunningAheadTheDeviceWaitsForEveryStep) {
  start({.one_step_ahead = false});
  EXPECT_EQ(submit(1, 3, 20).get().ids.size(), 20U);
  EXPECT_EQ(submit(2, 3, 20).get().ids.size(), 20U);
  worker->stop();
  const Histogram idle = worker->metrics().snapshot().gpu_idle_between_steps_seconds;
  EXPECT_GE(idle.count, 38U);
  EXPECT_GT(idle.sum, 0.0);
}

}  // namespace
}  // namespace rigel
