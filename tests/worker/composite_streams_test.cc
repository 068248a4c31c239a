// Loops that end by value while chunks of a stream come in: whoever consumes the stream next gets every chunk, in order.

#include "tests/worker/composite_worker.h"

#include <gtest/gtest.h>

namespace rigel {
namespace {

using testing::CompositeAnswer;
using testing::CompositeRequest;

/// Runs to the bound: 12 iterations of 4 frames, 24 chunks.
CompositeRequest with_many_frames(std::uint64_t seed) {
  return {.seed = seed, .latents = {1e9F, 2.0F, 3.0F, 4.0F, 5.0F}, .condition = 1.0F};
}
constexpr std::size_t kNumChunks = 24;

class CompositeStreams : public testing::CompositeWorkerTest,
                         public ::testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    CompositeWorkerTest::SetUp();
    loops = testing::EncoderLoops::kTwo;
    script.ends_encoding = [](std::int64_t start) { return start == GetParam(); };
  }
};

TEST_P(CompositeStreams, B_33_a_stop_by_value_loses_no_chunk_that_the_step_ahead_took) {
  const CompositeRequest request = with_many_frames(1);
  for (const bool ahead : {false, true}) {
    const std::size_t before = script.count("encode");
    start(ahead);
    const CompositeAnswer answer = submit(request).get();
    stop();
    EXPECT_EQ(answer.finish, FinishReason::kStop) << answer.error;
    EXPECT_EQ(answer.values, testing::expect(request).values);
    const std::size_t num_steps = script.count("encode") - before;
    if (ahead && GetParam() > 0) {  // when the denoiser is done
      EXPECT_GT(num_steps, kNumChunks) << "no step ahead had a chunk of its own";
    } else if (!ahead) {
      EXPECT_EQ(num_steps, kNumChunks);
    }
  }
}

TEST_P(CompositeStreams, B_33_in_company_and_with_steps_refused) {
  script.refuses = [](int num_asked) { return num_asked % 3 == 0; };
  start(/*one_step_ahead=*/true, /*num_rows=*/3);
  std::vector<std::future<CompositeAnswer>> answers;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    answers.push_back(submit(with_many_frames(seed)));
  }
  for (std::future<CompositeAnswer>& answer : answers) {
    EXPECT_EQ(answer.get().values, testing::expect(with_many_frames(1)).values);
  }
}

TEST_P(CompositeStreams,
       B_33_a_request_that_is_cancelled_meanwhile_leaves_the_others_their_chunks) {
  start(/*one_step_ahead=*/true, /*num_rows=*/2);
  auto cancelled = submit(with_many_frames(1));
  auto other = submit(with_many_frames(2));
  script.wait_for("encode", 4);
  worker->cancel(RequestId{1});
  cancelled.wait();
  EXPECT_EQ(submit(with_many_frames(3)).get().values, testing::expect(with_many_frames(3)).values);
  EXPECT_EQ(other.get().values, testing::expect(with_many_frames(2)).values);
}

// Early, late, and with the last chunk in the hands of the step ahead.
INSTANTIATE_TEST_SUITE_P(EndsWithTheChunkFrom, CompositeStreams, ::testing::Values(0, 40, 44));

}  // namespace
}  // namespace rigel
