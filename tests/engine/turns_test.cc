// What resources have for several turns of a step in one launch.

#include "engine/resources/positions.h"
#include "engine/resources/sampler.h"
#include "tests/engine/kv_test.h"

#include <gmock/gmock.h>

namespace rigel {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

/// Decode steps of two requests in a capture of two lanes.
class KvTurns : public testing::KvTest {
 protected:
  void SetUp() override {
    KvTest::SetUp();
    if (!IsSkipped()) {
      lease.bucket = {.walk = WalkId{1}, .num_lanes = 2, .num_tokens = 2, .key = CgKey()};
    }
  }
  void open_two(std::int32_t num_pages, std::int32_t first_length, std::int32_t second_length) {
    cache = make_cache(num_pages);
    first = open(*cache, 0);
    second = open(*cache, 1);
    ASSERT_TRUE(run_to_end(
        *cache, {{first, LabelId::kMain, first_length}, {second, LabelId::kMain, second_length}}));
  }
  /// Admits a token of each, and as many turns more as there is room for.
  std::int32_t admit_turns(std::int32_t wanted) {
    declare({{first, LabelId::kMain, 1}, {second, LabelId::kMain, 1}});
    context->batch.slot_lease = &lease;
    EXPECT_TRUE(admit(*cache).ok());
    EXPECT_TRUE(cache->fits_capture(step, *context));
    return cache->admit_turns(step, *context, wanted);
  }

  SlotLease lease;
  std::unique_ptr<KvCache> cache;
  RequestHandle first;
  RequestHandle second;
};

TEST_F(KvTurns, ThePagesOfAllTurnsAreThereAndPublishedBeforeTheFirst) {
  open_two(12, 10, 15);
  EXPECT_EQ(admit_turns(16), 16);
  EXPECT_EQ(cache->num_pages(first), 2);
  EXPECT_EQ(cache->num_pages(second), 2);
  plan(*cache);
  for (std::int32_t turn = 0; turn < 9; ++turn) {
    cache->commit(step, *context);
  }
  EXPECT_EQ(cache->stored_length(first), 19);
  EXPECT_EQ(cache->stored_length(second), 24);
  // What nine turns did not need the next step has: nothing new is published.
  EXPECT_EQ(admit_turns(4), 4);
  const ConstDeviceView updates = plan(*cache).page_updates;
  EXPECT_THAT(staged<std::int32_t>(updates.reshape({updates.num_elements()})), Each(-1));
  cache->assert_pages_conserved();
}

TEST_F(KvTurns, PagesThatAreShortShortenTheLaunchAndRefuseNobody) {
  open_two(1 + 3, 14, 12);  // one page is padding's, and one is free
  EXPECT_EQ(admit_turns(16), 4) << "the first took the page, the second has four places left";
  EXPECT_EQ(cache->num_pages(first), 2);
  EXPECT_EQ(cache->num_pages(second), 1);
  cache->abandon(step);
  open_two(1 + 2, 15, 15);
  EXPECT_EQ(admit_turns(16), 1) << "the turn that was admitted";
}

TEST_F(KvTurns, NoTurnGoesBeyondTheLongestText) {
  open_two(64, 250, 3);
  EXPECT_EQ(admit_turns(16), 6);
}

TEST_F(KvTurns, StepsThatStoreNothingHaveOne) {
  open_two(12, 10, 10);
  declare({{first, LabelId::kMain, 1}}).commit = false;
  context->batch.slot_lease = &lease;
  ASSERT_TRUE(admit(*cache).ok());
  EXPECT_EQ(cache->admit_turns(step, *context, 8), 1);
}

TEST_F(KvTurns, B_57_a_request_that_has_gone_commits_no_further_turn) {
  open_two(12, 10, 10);
  EXPECT_EQ(admit_turns(8), 8);
  plan(*cache);
  cache->commit(step, *context);
  cache->remove_request(first, last_epoch);
  step.drop(first);
  first = open(*cache, 0, /*generation=*/2);
  cache->commit(step, *context);
  EXPECT_EQ(cache->stored_length(first), 0);
  EXPECT_EQ(cache->stored_length(second), 12);
  cache->collect(last_epoch);
  cache->assert_pages_conserved();
}

using SamplerTurns = testing::EngineTest;

TEST_F(SamplerTurns, B_49_tokens_are_barred_in_all_turns_or_in_none) {
  Sampler sampler(ResourceKey{0}, *device,
                  {.num_rows = 2, .vocab_size = 8, .max_top_logprobs = 1, .signals = {}});
  RequestInfo waits = info_of(0);
  waits.sampling.min_tokens = 9;
  const RequestInfo other = info_of(1);
  SubmoduleStep step;
  auto& lanes = step.declare<SamplerStep>(ResourceKey{0}).lanes;
  lanes = {{.handle = waits.handle, .info = &waits, .num_generated = 6},
           {.handle = other.handle, .info = &other, .num_generated = 6},
           {.handle = {-1, 0}, .info = nullptr}};
  EXPECT_EQ(sampler.admit_turns(step, *context, 16), 3);
  EXPECT_EQ(sampler.admit_turns(step, *context, 2), 2);
  lanes[0].num_generated = 9;
  EXPECT_EQ(sampler.admit_turns(step, *context, 16), 16);
}

TEST_F(SamplerTurns, AStepNumbersItsTurnsBehindEachOther) {
  context->epoch = 7;
  context->max_turns = 4;
  staging->reset();
  context->begin_columns(*staging);
  EXPECT_THAT(staged<std::int64_t>(context->step_number), ElementsAre(28));
  staging->reset();
  context->begin_columns(*staging);
  context->set_num_turns(3);
  EXPECT_THAT(staged<std::int64_t>(context->last_step_number), ElementsAre(30));
  EXPECT_EQ(context->num_turns, 3);
}

}  // namespace
}  // namespace rigel
