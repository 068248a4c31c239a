#include "engine/resources/attention_planner.h"
#include "engine/resources/kv_cache.h"
#include "engine/resources/positions.h"
#include "tests/engine/engine_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rigel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class KvCacheTest : public rigel::testing::EngineTest {
 protected:
  static constexpr ResourceKey kKey{0};

  std::unique_ptr<KvCache> make_cache(std::int32_t num_pages) {
    return std::make_unique<KvCache>(kKey, *device,
                                     KvCacheConfig{.num_layers = 2,
                                                   .num_kv_heads = 2,
                                                   .head_dim = 8,
                                                   .page_size = 16,
                                                   .num_pages = num_pages,
                                                   .num_rows = 4,
                                                   .max_length = 256,
                                                   .dtype = Dtype::kF32});
  }
  SubmoduleStep& declare(std::vector<Segment> segments) {
    step.reset();
    step.declare<KvStep>(kKey);
    step.segments = std::move(segments);
    return step;
  }
  /// Admits, plans and commits; false where the cache refused.
  bool run(KvCache& cache, std::vector<Segment> segments) {
    declare(std::move(segments));
    if (!cache.admit(step, *context).ok()) {
      return false;
    }
    staging->reset();
    cache.plan(step, *context);
    cache.commit(step, *context);
    return true;
  }

  SubmoduleStep step;
};

TEST_F(KvCacheTest, T_KV_1_spans_around_a_page_take_the_right_pages) {
  auto cache = make_cache(16);
  const RequestInfo info = info_of(1);
  cache->ingest_request(info);
  ASSERT_TRUE(run(*cache, {{info.handle, LabelId::kMain, 15}}));
  EXPECT_EQ(cache->num_pages(info.handle), 1);
  ASSERT_TRUE(run(*cache, {{info.handle, LabelId::kMain, 1}}));
  EXPECT_EQ(cache->num_pages(info.handle), 1);
  ASSERT_TRUE(run(*cache, {{info.handle, LabelId::kMain, 1}}));
  EXPECT_EQ(cache->num_pages(info.handle), 2);
  EXPECT_EQ(cache->stored_length(info.handle), 17);
}

TEST_F(KvCacheTest, T_KV_2_a_refused_step_leaves_lengths_and_says_what_is_short) {
  auto cache = make_cache(3);
  const RequestInfo first = info_of(0);
  const RequestInfo second = info_of(2);
  cache->ingest_request(first);
  cache->ingest_request(second);
  ASSERT_TRUE(run(*cache, {{first.handle, LabelId::kMain, 16}}));
  declare({{second.handle, LabelId::kMain, 40}});
  const AdmitOutcome outcome = cache->admit(step, *context);
  EXPECT_EQ(outcome.reason, AdmitOutcome::Reason::kAllocationFailed);
  EXPECT_EQ(outcome.pages_short, 2);
  EXPECT_EQ(outcome.handle, second.handle);
  EXPECT_EQ(cache->stored_length(second.handle), 0);
  cache->arena().check_conserved();
}

TEST_F(KvCacheTest, T_KV_3_a_retry_uses_the_pages_that_were_reserved) {
  auto cache = make_cache(4);
  const RequestInfo first = info_of(0);
  const RequestInfo second = info_of(1);
  cache->ingest_request(first);
  cache->ingest_request(second);
  ASSERT_TRUE(run(*cache, {{first.handle, LabelId::kMain, 20}}));
  EXPECT_FALSE(run(*cache, {{second.handle, LabelId::kMain, 32}}));
  EXPECT_EQ(cache->num_pages(second.handle), 1);
  cache->remove_request(first.handle, /*last_touch=*/0);
  cache->collect(0);
  EXPECT_TRUE(run(*cache, {{second.handle, LabelId::kMain, 32}}));
  EXPECT_EQ(cache->num_pages(second.handle), 2);
}

TEST_F(KvCacheTest, B_20_ingesting_twice_keeps_the_stream) {
  auto cache = make_cache(8);
  const RequestInfo info = info_of(3);
  cache->ingest_request(info);
  ASSERT_TRUE(run(*cache, {{info.handle, LabelId::kMain, 5}}));
  cache->ingest_request(info);
  EXPECT_EQ(cache->stored_length(info.handle), 5);
}

TEST_F(KvCacheTest, OnlyNewPagesAreSentToTheDevice) {
  auto cache = make_cache(8);
  const RequestInfo info = info_of(1);
  cache->ingest_request(info);
  ASSERT_TRUE(run(*cache, {{info.handle, LabelId::kMain, 17}}));
  EXPECT_THAT(staged<std::int32_t>(context->plan<KvPlan>(kKey).page_updates),
              ElementsAre(1, 0, 1, 1, 1, 2));
  ASSERT_TRUE(run(*cache, {{info.handle, LabelId::kMain, 1}}));
  EXPECT_EQ(context->plan<KvPlan>(kKey).page_updates.dim(0), 0);
}

TEST_F(KvCacheTest, ARestartedRowOwnsNothingAndPublishesItsPagesAnew) {
  auto cache = make_cache(8);
  const RequestInfo info = info_of(0);
  cache->ingest_request(info);
  ASSERT_TRUE(run(*cache, {{info.handle, LabelId::kMain, 30}}));
  cache->restart_request(info.handle, /*last_touch=*/4);
  EXPECT_EQ(cache->stored_length(info.handle), 0);
  EXPECT_EQ(cache->arena().num_retiring(), 2);
  cache->collect(4);
  ASSERT_TRUE(run(*cache, {{info.handle, LabelId::kMain, 3}}));
  EXPECT_EQ(context->plan<KvPlan>(kKey).page_updates.dim(0), 1);
}

TEST_F(KvCacheTest, PaddingLanesTakeNoPages) {
  auto cache = make_cache(3);
  ASSERT_TRUE(run(*cache, {{RequestHandle{}, LabelId::kMain, 100}}));
  EXPECT_EQ(cache->arena().num_free(), 2);
}

TEST_F(KvCacheTest, AHandleOfAnEarlierOwnerIsRefused) {
  auto cache = make_cache(4);
  const RequestInfo first = info_of(2, 1);
  cache->ingest_request(first);
  cache->remove_request(first.handle, 0);
  cache->ingest_request(info_of(2, 2));
  EXPECT_THROW(std::ignore = cache->stored_length(first.handle), CheckError);
}

class PlannersTest : public rigel::testing::EngineTest {
 protected:
  void plan(Resource& resource, std::vector<Segment> segments) {
    staging->reset();
    context->reset();
    step.reset();
    context->num_tokens = 0;
    for (const Segment& segment : segments) {
      context->num_tokens += segment.span;
    }
    step.segments = std::move(segments);
    resource.plan(step, *context);
  }
  SubmoduleStep step;
};

TEST_F(PlannersTest, PositionsContinueAcrossChunksAndSkipPadding) {
  Positions positions(ResourceKey{0}, 4);
  const RequestInfo info = info_of(2);
  positions.ingest_request(info);
  plan(positions, {{info.handle, LabelId::kMain, 3}});
  positions.commit(step, *context);
  plan(positions, {{info.handle, LabelId::kMain, 2}, {RequestHandle{}, LabelId::kMain, 1}});
  const auto& columns = context->plan<PositionPlan>(ResourceKey{0});
  EXPECT_THAT(staged<std::int32_t>(columns.positions), ElementsAre(3, 4, -1));
  EXPECT_THAT(staged<std::int32_t>(columns.token_rows), ElementsAre(2, 2, -1));
  positions.restart_request(info.handle, 0);
  EXPECT_EQ(positions.next(info.handle), 0);
}

TEST_F(PlannersTest, AttentionSplitsDecodeLanesFromTilesOfOneRow) {
  AttentionPlanner planner(ResourceKey{0}, 16);
  plan(planner, {{{0, 1}, LabelId::kMain, 1},
                 {{1, 1}, LabelId::kMain, 1},
                 {{2, 1}, LabelId::kMain, 18},
                 {{3, 1}, LabelId::kMain, 1}});
  const auto& attention = context->plan<AttentionPlan>(ResourceKey{0});
  EXPECT_EQ(attention.num_decode_tokens, 2);
  EXPECT_THAT(staged<std::int32_t>(attention.prefill_tiles), ElementsAre(2, 16, 18, 2, 20, 1));
}

TEST_F(PlannersTest, ABatchOfDecodeLanesHasNoTiles) {
  AttentionPlanner planner(ResourceKey{0}, 16);
  plan(planner, {{{0, 1}, LabelId::kMain, 1}, {{1, 1}, LabelId::kMain, 1}});
  const auto& attention = context->plan<AttentionPlan>(ResourceKey{0});
  EXPECT_EQ(attention.num_decode_tokens, 2);
  EXPECT_THAT(staged<std::int32_t>(attention.prefill_tiles), IsEmpty());
}

}  // namespace
}  // namespace rigel
