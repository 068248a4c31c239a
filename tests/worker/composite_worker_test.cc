// Two nodes of other kinds than language models, through the worker: walks, a stream between partitions, one step ahead.

#include "tests/worker/composite_worker.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <stdexcept>

namespace rigel {
namespace {

using testing::CompositeAnswer;
using testing::CompositeExpectation;
using testing::CompositeMath;
using testing::CompositeNames;
using testing::CompositeRequest;
using testing::CompositeWorkerTest;
using testing::expect;
using ::testing::HasSubstr;
using testing::requests_of_every_kind;

using CompositeWorker = CompositeWorkerTest;

/// Stops by value, with two frames an iteration.
CompositeRequest ordinary(std::uint64_t seed, float guidance = 1.0F) {
  return {.seed = seed, .latents = {8.0F, -2.0F}, .condition = 0.5F, .guidance = guidance};
}
/// Runs to the bound.
CompositeRequest endless(std::uint64_t seed) {
  return {.seed = seed, .latents = {1e9F, 2.0F, 3.0F, 4.0F, 5.0F}, .condition = 1.0F};
}

class CompositeModes : public CompositeWorkerTest, public ::testing::WithParamInterface<bool> {};

TEST_P(CompositeModes, RequestsGetWhatTheLoopOnTheHostGives) {
  const std::vector<CompositeRequest> requests = requests_of_every_kind();
  start(GetParam());
  for (const CompositeRequest& request : requests) {
    check(submit(request).get(), request);
  }
  // The same in company, more of them than rows.
  start(GetParam(), 5);
  check_together(requests);
}

INSTANTIATE_TEST_SUITE_P(OneStepAhead, CompositeModes, ::testing::Bool());

TEST_F(CompositeWorker, T_WK_2_a_stop_by_value_wastes_one_row_step_and_a_bound_none) {
  // Without frames, so that no step of the encoder comes between.
  const CompositeRequest stops{.seed = 1, .latents = {8.0F, -2.0F, 1.0F}, .condition = 0.5F};
  const CompositeRequest is_bound{.seed = 2, .latents = {1e9F, 2.0F, 3.0F}, .condition = 1.0F};
  for (const CompositeRequest& request : {stops, is_bound}) {
    const auto num_iterations = static_cast<std::size_t>(expect(request).num_iterations);
    ASSERT_EQ(num_iterations < CompositeMath::kMaxIterations, request.seed == 1);
    for (const bool ahead : {false, true}) {
      const std::size_t before = script.count("denoise");
      start(ahead, 1);
      check(submit(request).get(), request);
      stop();
      EXPECT_EQ(script.count("denoise") - before,
                num_iterations + (ahead && request.seed == 1 ? 1 : 0));
    }
  }
}

TEST_F(CompositeWorker, T_WK_6_a_request_that_has_not_run_yet_loses_nothing) {
  script.num_pages = 5;
  script.num_host_pages = 64;
  std::latch first_begins(1);
  std::latch all_submitted(1);
  std::atomic<bool> has_begun = false;
  script.on_hook = [&](const std::string& hook, std::uint64_t) {
    if (hook == "denoiser.prepare" && !has_begun.exchange(true)) {
      first_begins.count_down();
      all_submitted.wait();
    }
  };
  start(/*one_step_ahead=*/false);
  // Of four pages the first request has one, and the next four want one each: their first step is refused, where none of them
  // has anything to take to the host.
  std::vector<CompositeRequest> requests;
  std::vector<std::future<CompositeAnswer>> answers;
  for (std::uint64_t seed = 1; seed <= 7; ++seed) {
    requests.push_back({.seed = seed,
                        .latents = {static_cast<float>(seed), -2.0F, 0.5F},
                        .condition = 0.5F,
                        .guidance = 2.5F});
    answers.push_back(submit(requests.back()));
    first_begins.wait();
  }
  all_submitted.count_down();
  for (std::size_t index = 0; index < requests.size(); ++index) {
    check(answers[index].get(), requests[index]);
  }
  const ServiceMetrics metrics = worker->metrics().snapshot();
  EXPECT_GT(metrics.num_preemptions, metrics.num_offloads);
}

TEST_F(CompositeWorker, T_WK_9_a_chain_yields_to_a_node_that_is_ready) {
  start();
  const CompositeRequest request = endless(1);
  check(submit(request).get(), request);
  stop();
  const std::vector<std::string> events = script.events();
  const auto first = std::ranges::find(events, "encode 1");
  const auto last = std::find(events.rbegin(), events.rend(), "denoise 1").base();
  EXPECT_LT(first, last) << "the encoder waited for the end of the loop";
}

TEST_F(CompositeWorker, B_54_a_request_without_an_input_fails_alone) {
  start();
  auto whole = submit(ordinary(1));
  const CompositeRequest given = ordinary(2);
  auto lacking = submit_inputs(
      2, {{"denoiser", "latents", {Tensor::copy_of(std::span<const float>(given.latents))}}});
  check(whole.get(), ordinary(1));
  const CompositeAnswer answer = lacking.get();
  EXPECT_EQ(answer.finish, FinishReason::kError);
  EXPECT_THAT(answer.error, HasSubstr("node 'denoiser': nothing brings input 'condition'"));
  check(submit(ordinary(3)).get(), ordinary(3));
}

TEST_F(CompositeWorker, AnInputThatNoWalkHasIsNamed) {
  start();
  const CompositeAnswer answer = submit_inputs(1, {{"denoiser", "picture", {}}}).get();
  EXPECT_EQ(answer.finish, FinishReason::kError);
  EXPECT_THAT(answer.error, HasSubstr("'denoiser' with an input 'picture'"));
  EXPECT_THAT(submit_inputs(2, {{"encoder", "frame", {}}}).get().error,
              HasSubstr("'encoder' with an input 'frame'"))
      << "which only a stream fills";
}

TEST_F(CompositeWorker, T_WK_4_a_step_ahead_that_is_refused_gives_its_chunk_back) {
  // The encoder lags behind, so its steps follow each other; every second one behind another is refused with its chunk.
  script.refuses = [](int num_asked) { return num_asked % 2 == 0; };
  start();
  const std::vector<CompositeRequest> requests = {endless(1), ordinary(2), endless(3), ordinary(4)};
  check_together(requests);
  EXPECT_GT(script.count("refused"), 0U);
}

TEST_F(CompositeWorker, CaptureGroupsAreBatchedApart) {
  start();
  std::vector<std::future<CompositeAnswer>> answers;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    answers.push_back(submit(ordinary(seed, seed % 2 == 0 ? 2.0F : 1.0F)));
  }
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    check(answers[seed - 1].get(), ordinary(seed, seed % 2 == 0 ? 2.0F : 1.0F));
  }
  // Without guidance, with it, and where it begins; the denoiser sees to it that no step has two.
  for (const char* group : {"group 0", "group 1", "group 2"}) {
    EXPECT_GT(script.count(group), 0U) << group;
  }
}

class CompositeFailures : public CompositeWorkerTest,
                          public ::testing::WithParamInterface<const char*> {};

TEST_P(CompositeFailures, T_WK_7_fail_those_they_touch_once_and_nobody_later) {
  const std::string failing = GetParam();
  std::atomic<bool> has_thrown = false;
  script.on_hook = [&](const std::string& hook, std::uint64_t seed) {
    if (seed == 2 && hook == failing && !has_thrown.exchange(true)) {
      throw std::runtime_error("broken");
    }
  };
  start(/*one_step_ahead=*/true, /*num_rows=*/2);
  const CompositeAnswer failed = submit(ordinary(2)).get();
  EXPECT_EQ(failed.finish, FinishReason::kError);
  EXPECT_THAT(failed.error, HasSubstr("broken"));
  EXPECT_TRUE(has_thrown);
  auto third = submit(ordinary(3));
  auto fourth = submit(endless(4));
  check(third.get(), ordinary(3));
  check(fourth.get(), endless(4));
  EXPECT_TRUE(worker->healthy());
}

INSTANTIATE_TEST_SUITE_P(EveryHook, CompositeFailures,
                         ::testing::Values("denoiser.prepare", "denoiser.forward",
                                           "denoiser.postprocess", "denoiser.check_stop",
                                           "encoder.prepare", "encoder.forward", "gate.plan",
                                           "gate.commit"));

class CompositeResourceFailures : public CompositeWorkerTest,
                                  public ::testing::WithParamInterface<const char*> {};

TEST_P(CompositeResourceFailures, T_WK_7_a_resource_that_fails_costs_its_batch_once_and_no_other) {
  std::atomic<bool> has_thrown = false;
  script.on_hook = [&](const std::string& hook, std::uint64_t seed) {
    if (hook == GetParam() && seed == 2 && !has_thrown.exchange(true)) {
      throw std::runtime_error("broken");
    }
  };
  start(/*one_step_ahead=*/true, /*num_rows=*/3);
  std::vector<std::future<CompositeAnswer>> answers;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    answers.push_back(submit(ordinary(seed)));
  }
  int num_failed = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    CompositeAnswer answer = answers[seed - 1].get();
    if (answer.finish == FinishReason::kError) {
      EXPECT_THAT(answer.error, HasSubstr("broken"));
      ++num_failed;
    } else {
      EXPECT_NE(seed, 2U);
      check(std::move(answer), ordinary(seed));
    }
  }
  EXPECT_GE(num_failed, 1);
  EXPECT_LE(num_failed, 3) << "the encoder takes three at a time";
  EXPECT_TRUE(worker->healthy());
}

INSTANTIATE_TEST_SUITE_P(PlanAndCommit, CompositeResourceFailures,
                         ::testing::Values("gate.plan", "gate.commit"));

TEST_F(CompositeWorker, T_WK_7_a_request_that_fails_to_prepare_leaves_its_batch) {
  script.on_hook = [](const std::string& hook, std::uint64_t seed) {
    if (seed % 3 == 0 && hook == "denoiser.prepare") {
      throw std::runtime_error("broken");
    }
  };
  start();
  std::vector<std::future<CompositeAnswer>> answers;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    answers.push_back(submit(ordinary(seed)));
  }
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    if (seed % 3 == 0) {
      EXPECT_EQ(answers[seed - 1].get().finish, FinishReason::kError);
    } else {
      check(answers[seed - 1].get(), ordinary(seed));
    }
  }
}

TEST_F(CompositeWorker,
       T_WK_3_a_request_that_is_cancelled_during_its_steps_leaves_the_others_alone) {
  start(/*one_step_ahead=*/true, /*num_rows=*/2);
  auto first = submit(endless(1));
  auto second = submit(endless(2));
  script.wait_for("denoise", 3);
  worker->cancel(RequestId{1});
  const FinishReason finish = first.get().finish;
  EXPECT_TRUE(finish == FinishReason::kCancelled || finish == FinishReason::kStop);
  check(second.get(), endless(2));
  check(submit(ordinary(3)).get(), ordinary(3));
}

TEST_F(CompositeWorker, T_WK_6_branches_that_lose_their_pages_to_the_host_go_on_with_them) {
  script.num_pages = 14;
  script.num_host_pages = 64;
  for (const bool ahead : {false, true}) {
    start(ahead);
    const std::vector<CompositeRequest> requests = requests_of_every_kind();
    check_together(requests);
    EXPECT_GT(worker->metrics().snapshot().num_offloads, 0U);
  }
}

TEST_F(CompositeWorker, T_WK_9_a_chain_yields_to_chunks_of_another_capture_group) {
  script.keys_by_chunk = true;
  loops = testing::EncoderLoops::kTwo;
  script.ends_encoding = [](std::int64_t start) { return start == 2; };
  Engine* encoder = nullptr;
  on_model = [&](CompositeModel& model) {
    encoder = model.engines.back().get();
    encoder->capture_steps({.staging_bytes = 4096}).capture_all();
  };
  for (const bool ahead : {false, true}) {
    start(ahead, /*num_rows=*/5);
    std::vector<CompositeRequest> requests;
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      // One frame an iteration and an odd number of them, or four.
      requests.push_back(
          seed % 2 == 0 ? endless(seed)
                        : CompositeRequest{.seed = seed,
                                           .latents = {static_cast<float>(seed), -2.0F, 0.5F, 3.0F},
                                           .condition = 0.5F});
    }
    check_together(requests);
    worker->stop();  // from here on its engines are ours
    EXPECT_TRUE(encoder->graph_misses().all().empty());
  }
  EXPECT_GT(script.count("chunks of 1"), 0U);
  EXPECT_GT(script.count("chunks of 2"), 0U);
}

/// What the loops on the host give, with every step that can be captured replayed: the denoiser's by batch, guided and not, the
/// encoder's with chunks of one and two items packed together. Captured before the worker starts, or by it while it serves.
TEST_F(CompositeWorker, T_CG_3_captured_loops_and_streams_give_what_eager_ones_do) {
  std::vector<CompositeRequest> requests = requests_of_every_kind();
  for (std::uint64_t seed = 13; seed <= 18; ++seed) {
    requests.push_back({.seed = seed,
                        .latents = {static_cast<float>(seed), -2.0F, 0.5F, 3.0F},
                        .condition = 0.5F,
                        .guidance = seed % 2 == 0 ? 2.5F : 1.0F});
  }
  for (const bool lazily : {false, true}) {
    std::vector<const Engine*> engines;
    on_model = [&](CompositeModel& model) {
      for (const auto& engine : model.engines) {
        StepCaptures& captures = engine->capture_steps({.staging_bytes = 4096});
        if (!lazily) {
          captures.capture_all();
        }
        engines.push_back(engine.get());
      }
    };
    for (const bool ahead : {false, true}) {
      order = !lazily ? DeviceOrder::kAscending
              : ahead ? DeviceOrder::kRandom
                      : DeviceOrder::kDescending;
      engines.clear();
      start(ahead, /*num_rows=*/6);
      check_together(requests);
      worker->stop();  // from here on its engines are ours
      const ServiceMetrics metrics = worker->metrics().snapshot();
      std::map<std::string, std::uint64_t> num_replays;  // by node
      for (const GraphReplayCount& replays : metrics.graph_replays) {
        EXPECT_EQ(replays.walk, replays.node == "encoder" ? "encode" : "denoise");
        num_replays[replays.node] += replays.count;
      }
      for (const Engine* engine : engines) {
        const GraphRunner& runner = engine->captures()->runner();
        EXPECT_TRUE(runner.failures().empty());
        EXPECT_LT(runner.num_pending(), lazily ? runner.buckets().size() : 1U);
      }
      if (lazily) {
        continue;  // what was captured by then depends on the threads
      }
      EXPECT_GT(num_replays["encoder"], 5U);
      EXPECT_GT(num_replays["denoiser"], 5U);
      for (const GraphMissCount& miss : metrics.graph_misses) {
        EXPECT_EQ(miss.node + " " + miss.walk, "denoiser denoise");
        EXPECT_EQ(miss.reason, "declined") << "rows of other lengths";
      }
    }
  }
}

TEST_F(CompositeWorker, RowsAheadAndThoseForNothingAreCounted) {
  for (const bool ahead : {false, true}) {
    start(ahead, /*num_rows=*/6);
    const std::vector<CompositeRequest> requests = requests_of_every_kind();
    check_together(requests);
    worker->stop();
    const ServiceMetrics metrics = worker->metrics().snapshot();
    const auto continuing = static_cast<std::size_t>(SpeculativeRow::kContinuing);
    EXPECT_EQ(metrics.speculative_rows[continuing] > 0, ahead);
    // A loop that ends by value has at most one step ahead of that, and one that ends at its bound none.
    const auto by_value = static_cast<std::uint64_t>(
        std::ranges::count_if(requests, [](const CompositeRequest& request) {
          return expect(request).num_iterations < testing::CompositeMath::kMaxIterations;
        }));
    const auto wasted = metrics.wasted_row_steps[static_cast<std::size_t>(WasteReason::kStopToken)];
    EXPECT_LE(wasted, ahead ? by_value : 0U);
  }
}

}  // namespace
}  // namespace rigel
