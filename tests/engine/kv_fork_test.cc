#include "tests/engine/kv_test.h"

#include <gmock/gmock.h>

namespace rigel {
namespace {

using ::testing::ElementsAreArray;
using testing::kAside;
using Reason = AdmitOutcome::Reason;

class KvForkTest : public testing::KvTest {
 protected:
  std::unique_ptr<KvCache> make_forking_cache(std::int32_t num_pages) {
    KvCacheConfig config = config_of(num_pages);
    config.num_labels = 2;
    return make_cache(config);
  }
  /// A stream of `length` tokens with the values 0, 1, ...
  RequestHandle fill(KvCache& cache, std::int32_t row, std::int32_t length) {
    const RequestHandle handle = open(cache, row);
    EXPECT_TRUE(run(cache, {{handle, LabelId::kMain, length}}));
    write(cache, handle, LabelId::kMain, 0, numbers(length));
    return handle;
  }
};

TEST_F(KvForkTest, T_KV_4_a_fork_before_the_step_copies_the_last_page_and_then_diverges) {
  for (const std::int32_t length : {1, 15, 16, 17, 32, 37}) {
    auto cache = make_forking_cache(16);
    const RequestHandle handle = fill(*cache, 1, length);
    KvStep& kv = declare({{handle, LabelId::kMain, 2}, {handle, kAside, 3}});
    kv.pre_forks = {{LabelId::kMain, kAside}};
    ASSERT_TRUE(run(*cache));
    write(*cache, handle, LabelId::kMain, length, {100, 101});
    write(*cache, handle, kAside, length, {200, 201, 202});
    std::vector<std::int32_t> expected = numbers(length);
    expected.insert(expected.end(), {100, 101});
    EXPECT_THAT(read(*cache, handle, LabelId::kMain), ElementsAreArray(expected)) << length;
    expected = numbers(length);
    expected.insert(expected.end(), {200, 201, 202});
    EXPECT_THAT(read(*cache, handle, kAside), ElementsAreArray(expected)) << length;
    cache->assert_pages_conserved();
    cache->remove_request(handle, last_epoch);
    cache->collect(last_epoch);
    EXPECT_EQ(cache->arena().num_free(), cache->arena().capacity());
  }
}

TEST_F(KvForkTest, T_KV_4_a_fork_after_the_step_has_the_tokens_of_the_step) {
  for (const std::int32_t span : {1, 3, 15, 16, 17}) {
    auto cache = make_forking_cache(16);
    const RequestHandle handle = fill(*cache, 0, 14);
    declare({{handle, LabelId::kMain, span}}).post_forks = {{LabelId::kMain, kAside}};
    ASSERT_TRUE(admit(*cache).ok());
    plan(*cache);
    write(*cache, handle, LabelId::kMain, 14, numbers(span, 14));  // the forward
    cache->commit(step, *context);
    EXPECT_THAT(read(*cache, handle, kAside), ElementsAreArray(numbers(14 + span))) << span;
    cache->assert_pages_conserved();
  }
}

/// The step fills a page and begins another, so the fork needs one more page than it would have needed before the step.
TEST_F(KvForkTest, B_22_a_fork_after_the_step_is_reserved_with_what_the_step_adds) {
  auto cache = make_forking_cache(4);
  const RequestHandle handle = fill(*cache, 0, 16);
  declare({{handle, LabelId::kMain, 17}}).post_forks = {{LabelId::kMain, kAside}};
  const AdmitOutcome outcome = admit(*cache);
  EXPECT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.label, kAside);
  EXPECT_EQ(outcome.pages_short, 1);

  declare({{handle, LabelId::kMain, 16}}).post_forks = {{LabelId::kMain, kAside}};
  ASSERT_TRUE(admit(*cache).ok()) << "a fork at the end of a page shares all of it";
  plan(*cache);
  cache->commit(step, *context);
  EXPECT_EQ(cache->stored_length(handle, kAside), 32);
  cache->assert_pages_conserved();
}

TEST_F(KvForkTest, ForksOfOneStepFollowEachOther) {
  KvCacheConfig config = config_of(16);
  config.num_labels = 3;
  auto cache = make_cache(config);
  const RequestHandle handle = fill(*cache, 2, 21);
  KvStep& kv = declare({{handle, LabelId::kMain, 1}});
  kv.pre_forks = {{LabelId::kMain, kAside}, {kAside, LabelId{2}}};
  kv.post_forks = {{LabelId::kMain, kAside}};
  ASSERT_TRUE(admit(*cache).ok());
  plan(*cache);
  write(*cache, handle, LabelId::kMain, 21, {21});
  cache->commit(step, *context);
  EXPECT_THAT(read(*cache, handle, kAside), ElementsAreArray(numbers(22)));
  EXPECT_THAT(read(*cache, handle, LabelId{2}), ElementsAreArray(numbers(21)));
  cache->assert_pages_conserved();
}

TEST_F(KvForkTest, T_KV_4_a_captured_step_has_room_for_a_short_fork_and_none_for_a_long_one) {
  const SlotLease lease{0, {WalkId{}, 1, 1, CgKey(), false}};
  auto cache = make_forking_cache(16);
  for (const std::int32_t length : {20, 80}) {
    const RequestHandle handle = fill(*cache, length == 20 ? 0 : 1, length);
    declare({{handle, LabelId::kMain, 1}, {handle, kAside, 1}}).pre_forks = {
        {LabelId::kMain, kAside}};
    context->batch.slot_lease = &lease;
    ASSERT_TRUE(admit(*cache).ok());
    EXPECT_EQ(cache->fits_capture(step, *context), length == 20);
    context->batch.slot_lease = length == 20 ? &lease : nullptr;
    EXPECT_NO_THROW(plan(*cache));
    cache->commit(step, *context);
    context->batch.slot_lease = nullptr;
  }
}

TEST_F(KvForkTest, AForkIntoAUsedLabelReplacesIt) {
  auto cache = make_forking_cache(16);
  const RequestHandle handle = fill(*cache, 0, 20);
  ASSERT_TRUE(run(*cache, {{handle, kAside, 40}}));
  declare({{handle, kAside, 1}}).pre_forks = {{LabelId::kMain, kAside}};
  ASSERT_TRUE(run(*cache));
  EXPECT_EQ(cache->stored_length(handle, kAside), 21);
  cache->collect(last_epoch);
  cache->assert_pages_conserved();
}

TEST_F(KvForkTest, AStreamCutBackIntoASharedPageWritesACopy) {
  auto cache = make_forking_cache(16);
  const RequestHandle handle = fill(*cache, 0, 32);
  declare({{handle, LabelId::kMain, 0}}).pre_forks = {{LabelId::kMain, kAside}};
  ASSERT_TRUE(run(*cache));
  cache->truncate_to(handle, LabelId::kMain, 20, last_epoch);
  ASSERT_TRUE(run(*cache, {{handle, LabelId::kMain, 2}}));
  write(*cache, handle, LabelId::kMain, 20, {700, 701});
  EXPECT_THAT(read(*cache, handle, kAside), ElementsAreArray(numbers(32)));
  std::vector<std::int32_t> expected = numbers(20);
  expected.insert(expected.end(), {700, 701});
  EXPECT_THAT(read(*cache, handle, LabelId::kMain), ElementsAreArray(expected));
  const auto table = staged<std::int32_t>(cache->page_table());
  EXPECT_EQ(PageIndex{table[1]}, cache->pages(handle)[1]);
  cache->assert_pages_conserved();
}

TEST_F(KvForkTest, APageThatAStreamHadForItselfIsAskedForAgainOnceItCanBeShared) {
  auto cache = make_forking_cache(16);
  const RequestHandle handle = fill(*cache, 0, 17);
  for (std::int32_t token = 17; token < 32; ++token) {  // one by one into a page of its own
    ASSERT_TRUE(run(*cache, {{handle, LabelId::kMain, 1}}));
    write(*cache, handle, LabelId::kMain, token, {token});
  }
  declare({{handle, LabelId::kMain, 0}}).pre_forks = {{LabelId::kMain, kAside}};
  ASSERT_TRUE(run(*cache));
  cache->truncate_to(handle, LabelId::kMain, 30, last_epoch);
  ASSERT_TRUE(run(*cache, {{handle, LabelId::kMain, 1}}));
  write(*cache, handle, LabelId::kMain, 30, {700});
  EXPECT_THAT(read(*cache, handle, kAside), ElementsAreArray(numbers(32)));
  EXPECT_NE(cache->pages(handle)[1], cache->pages(handle, kAside)[1]);
  cache->assert_pages_conserved();
}

TEST_F(KvForkTest, LabelsHaveRowsOfTheirOwnInThePageTable) {
  auto cache = make_forking_cache(16);
  const RequestHandle handle = open(*cache, 3);
  declare({{handle, LabelId::kMain, 1}, {handle, kAside, 2}});
  ASSERT_TRUE(admit(*cache).ok());
  const KvPlan planned = plan(*cache);
  EXPECT_THAT(staged<std::int32_t>(planned.token_streams), ::testing::ElementsAre(3, 7, 7));
  EXPECT_THAT(staged<std::int32_t>(planned.token_indices), ::testing::ElementsAre(0, 0, 1));
  EXPECT_EQ(cache->page_table().dim(0), 8);
}

TEST_F(KvForkTest, CombinedLabelsLieLabelAfterLabel) {
  auto cache = make_forking_cache(16);
  const RequestHandle first = open(*cache, 0);
  const RequestHandle second = open(*cache, 1);
  const auto try_segments = [&](std::vector<Segment> segments) {
    declare(std::move(segments)).combined_labels = {LabelId::kMain, kAside};
    std::ignore = admit(*cache);
    plan(*cache);
  };
  EXPECT_NO_THROW(try_segments({{first, LabelId::kMain, 1},
                                {second, LabelId::kMain, 1},
                                {first, kAside, 1},
                                {second, kAside, 1}}));
  EXPECT_THROW(try_segments({{first, LabelId::kMain, 1},
                             {first, kAside, 1},
                             {second, LabelId::kMain, 1},
                             {second, kAside, 1}}),
               CheckError);
  EXPECT_THROW(
      try_segments({{first, LabelId::kMain, 1}, {second, LabelId::kMain, 1}, {first, kAside, 1}}),
      CheckError)
      << "the second request lacks a label";
}

TEST_F(KvForkTest, AForkIntoItselfOrAnUnknownLabelIsRefused) {
  auto cache = make_forking_cache(8);
  const RequestHandle handle = fill(*cache, 0, 3);
  for (const Fork fork : {Fork{LabelId::kMain, LabelId::kMain}, Fork{LabelId::kMain, LabelId{2}}}) {
    declare({{handle, LabelId::kMain, 1}}).pre_forks = {fork};
    EXPECT_THROW(std::ignore = admit(*cache), CheckError);
  }
}

}  // namespace
}  // namespace rigel
