// A step that ran for nothing: what each resource keeps of it.

#include "engine/resources/cross_attention_cache.h"
#include "engine/resources/positions.h"
#include "engine/resources/slot_state.h"
#include "tests/engine/kv_test.h"

namespace rigel {
namespace {

class TruncatedRequest : public testing::KvTest {
 protected:
  static constexpr ResourceKey kPositionsKey{1};

  void SetUp() override {
    KvTest::SetUp();
    if (device != nullptr) {
      KvCacheConfig config = config_of(16);
      config.num_labels = 2;
      cache = make_cache(config);
      handle = open(*cache, 1);
      positions.ingest_request(info_of(1));
    }
  }
  /// A step of both.
  void run_both(std::vector<Segment> segments, std::vector<Fork> pre = {},
                std::vector<Fork> post = {}, bool commit = true) {
    KvStep& kv = declare(std::move(segments));
    kv.pre_forks = std::move(pre);
    kv.post_forks = std::move(post);
    kv.commit = commit;
    step.declare<PositionStep>(kPositionsKey);
    ASSERT_TRUE(admit(*cache).ok());
    plan(*cache);
    context->num_tokens = 0;
    for (const Segment& segment : step.segments) {
      context->num_tokens += segment.span;
    }
    positions.plan(step, *context);
    cache->commit(step, *context);
    positions.commit(step, *context);
  }
  void truncate_both() {
    cache->truncate_request(step, info_of(1), last_epoch);
    positions.truncate_request(step, info_of(1), last_epoch);
  }
  void expect(std::int32_t main, std::int32_t aside) {
    EXPECT_EQ(cache->stored_length(handle), main);
    EXPECT_EQ(cache->stored_length(handle, testing::kAside), aside);
    EXPECT_EQ(positions.next(handle), main);
    EXPECT_EQ(positions.next(handle, testing::kAside), aside);
    cache->assert_pages_conserved();
  }

  std::unique_ptr<KvCache> cache;
  Positions positions{kPositionsKey, 4, 2, kKey};
  RequestHandle handle;
};

TEST_F(TruncatedRequest, T_KV_1_forgets_what_the_step_appended_and_its_pages) {
  run_both({{handle, LabelId::kMain, 16}, {handle, testing::kAside, 3}});
  const RequestHandle other = open(*cache, 2);
  positions.ingest_request(info_of(2));
  run_both({{handle, LabelId::kMain, 1}, {other, LabelId::kMain, 5}, {handle, testing::kAside, 2}});
  EXPECT_EQ(cache->num_pages(handle), 2);
  truncate_both();
  expect(16, 3);
  EXPECT_EQ(cache->num_pages(handle), 1);
  EXPECT_EQ(cache->stored_length(other), 5) << "whose step it was, too";
  EXPECT_EQ(cache->arena().num_retiring(), 1) << "the step in flight writes the page";
}

TEST_F(TruncatedRequest, T_KV_4_a_forked_stream_stays_a_copy_of_its_source) {
  run_both({{handle, LabelId::kMain, 18}, {handle, testing::kAside, 3}});
  run_both({{handle, LabelId::kMain, 4}, {handle, testing::kAside, 4}},
           {{LabelId::kMain, testing::kAside}});
  truncate_both();
  expect(18, 18);
  run_both({{handle, LabelId::kMain, 2}, {handle, testing::kAside, 1}}, {},
           {{LabelId::kMain, testing::kAside}});
  expect(20, 20);
  truncate_both();
  expect(18, 18);
}

TEST_F(TruncatedRequest, T_KV_1_a_step_that_stores_nothing_has_nothing_to_forget) {
  run_both({{handle, LabelId::kMain, 6}});
  declare({{handle, LabelId::kMain, 2}}).commit = false;
  ASSERT_TRUE(run(*cache));
  cache->truncate_request(step, info_of(1), last_epoch);
  EXPECT_EQ(cache->stored_length(handle), 6);
}

TEST_F(TruncatedRequest, WhatChangesInPlaceSaysThatItCannotBe) {
  EXPECT_TRUE(cache->can_truncate(handle));
  EXPECT_TRUE(positions.can_truncate(handle));
  KvCacheConfig sinks = config_of(8);
  sinks.retention = {.max_tokens = 16, .protected_tokens = 4};
  EXPECT_FALSE(make_cache(sinks)->can_truncate(handle));
  const SlotState state(kPositionsKey, *device, {.num_rows = 2, .shape = {1}});
  EXPECT_FALSE(state.can_truncate(handle));
}

}  // namespace
}  // namespace rigel
