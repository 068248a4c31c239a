// Broken invariants in the worker's loop around a composite model: what a completion costs, and what nobody can answer for.

#include "tests/worker/composite_worker.h"

#include <gmock/gmock.h>

#include <atomic>
#include <stdexcept>

namespace rigel {
namespace {

using testing::CompositeAnswer;
using testing::CompositeRequest;
using ::testing::HasSubstr;

CompositeRequest request_of(std::uint64_t seed) {
  return {.seed = seed, .latents = {8.0F, -2.0F}, .condition = 0.5F};
}

class CompositeFaults : public testing::CompositeWorkerTest {
 protected:
  /// The hook throws once, the first time that it is called with at least this number.
  void break_hook(const std::string& broken, std::uint64_t number) {
    script.on_hook = [this, broken, number](const std::string& hook, std::uint64_t given) {
      if (hook == broken && given >= number && !has_thrown.exchange(true)) {
        throw std::logic_error("an invariant is broken");
      }
    };
  }
  std::atomic<bool> has_thrown = false;
};

TEST_F(CompositeFaults, B_31_a_completion_that_fails_costs_its_batch_and_nobody_else) {
  for (const std::uint64_t step : {1, 2, 3}) {
    has_thrown = false;
    break_hook("gate.collect", step);
    start(/*one_step_ahead=*/true, /*num_rows=*/3);
    std::vector<std::future<CompositeAnswer>> answers;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      answers.push_back(submit(request_of(seed)));
    }
    int num_failed = 0;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      const CompositeAnswer answer = answers[seed - 1].get();
      if (answer.finish == FinishReason::kError) {
        EXPECT_THAT(answer.error, HasSubstr("an invariant is broken"));
        ++num_failed;
      } else {
        EXPECT_EQ(answer.values, testing::expect(request_of(seed)).values);
      }
    }
    EXPECT_GE(num_failed, 1);
    EXPECT_LE(num_failed, 3) << "the encoder takes three at a time";
    EXPECT_TRUE(worker->healthy());
    stop();
  }
}

TEST_F(CompositeFaults, B_31_a_row_that_cannot_be_closed_ends_the_worker_and_answers_everybody) {
  break_hook("denoiser.cleanup", 0);
  start(/*one_step_ahead=*/true, /*num_rows=*/2);
  std::vector<std::future<CompositeAnswer>> answers;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    answers.push_back(submit(request_of(seed)));
  }
  int num_failed = 0;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const CompositeAnswer answer = answers[seed - 1].get();
    if (answer.finish == FinishReason::kError) {
      EXPECT_THAT(answer.error, HasSubstr("an invariant is broken"));
      ++num_failed;
    } else {
      EXPECT_EQ(answer.values, testing::expect(request_of(seed)).values);
    }
  }
  EXPECT_GE(num_failed, 3) << "at most one had its last value in the same step";
  EXPECT_FALSE(worker->healthy());
  EXPECT_THAT(submit(request_of(5)).get().error, HasSubstr("runs no requests"));
  worker->cancel(RequestId{5});
}

}  // namespace
}  // namespace rigel
