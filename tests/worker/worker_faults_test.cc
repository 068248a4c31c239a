// Broken invariants while a step's results are handled.

#include "tests/worker/scripted_worker.h"

#include <gtest/gtest.h>

namespace rigel {
namespace {

using testing::Answer;
using WorkerFaults = testing::ScriptedWorkerTest;

TEST_F(WorkerFaults, B_31_results_that_cannot_be_handled_fail_their_batch_and_nobody_else) {
  for (const bool ahead : {true, false}) {
    start({.one_step_ahead = ahead});
    // The scripted model has no log-probabilities to give, which shows when they are looked up.
    SamplingParams wants_logprobs;
    wants_logprobs.logprobs = 1;
    const Answer broken = submit(1, 5, 10, wants_logprobs).get();
    EXPECT_EQ(broken.finish, FinishReason::kError);
    EXPECT_FALSE(broken.error.empty());
    const Answer next = submit(2, 5, 10).get();
    EXPECT_EQ(next.finish, FinishReason::kLength) << next.error;
    EXPECT_EQ(next.ids, tokens_of(2, 10));
    EXPECT_TRUE(worker->healthy());
    stop_and_check_pages();
    TearDown();
  }
}

}  // namespace
}  // namespace rigel
