#include "engine/resources/positions.h"
#include "tests/engine/kv_test.h"

#include <gmock/gmock.h>

namespace rigel {
namespace {

using ::testing::ElementsAreArray;

class PrefixCacheTest : public testing::KvTest {
 protected:
  static KvCacheConfig prefix_config(std::int32_t num_pages) {
    KvCacheConfig config = config_of(num_pages);
    config.enable_prefix_cache = true;
    return config;
  }
  /// A request that computes all of `tokens` and lets others find them.
  RequestHandle compute(KvCache& cache, std::int32_t row, const std::vector<std::int32_t>& tokens) {
    const RequestHandle handle = open(cache, row);
    const std::int32_t start = cache.match_prefix(handle, tokens);
    const auto size = static_cast<std::int32_t>(tokens.size());
    EXPECT_TRUE(run_to_end(cache, {{handle, LabelId::kMain, size - start}}));
    write(cache, handle, LabelId::kMain, start, {tokens.begin() + start, tokens.end()});
    cache.extend_prefix(handle, tokens);
    return handle;
  }
  void close(KvCache& cache, RequestHandle handle) {
    cache.remove_request(handle, last_epoch);
    cache.collect(last_epoch);
  }
};

TEST_F(PrefixCacheTest, T_KV_8_a_full_match_leaves_a_page_to_compute) {
  auto cache = make_cache(prefix_config(16));
  const RequestHandle first = compute(*cache, 0, numbers(48));
  const RequestHandle second = open(*cache, 1);
  EXPECT_EQ(cache->match_prefix(second, numbers(48)), 32);
  EXPECT_EQ(cache->match_prefix(second, numbers(48)), 32) << "the same answer again";
  ASSERT_TRUE(run(*cache, {{second, LabelId::kMain, 16}}));
  EXPECT_EQ(cache->stored_length(second), 48);
  EXPECT_EQ(cache->pages(second)[0], cache->pages(first)[0]);
  EXPECT_EQ(cache->pages(second)[1], cache->pages(first)[1]);
  EXPECT_NE(cache->pages(second)[2], cache->pages(first)[2]);
  EXPECT_EQ(cache->match_prefix(second, numbers(48)), 0) << "it has begun";
  cache->assert_pages_conserved();
}

TEST_F(PrefixCacheTest, ATokenBehindAFullPageIsEnoughToUseThatPage) {
  auto cache = make_cache(prefix_config(16));
  compute(*cache, 0, numbers(32));
  const RequestHandle second = open(*cache, 1);
  EXPECT_EQ(cache->match_prefix(second, numbers(33)), 32);
  const RequestHandle third = open(*cache, 2);
  EXPECT_EQ(cache->match_prefix(third, numbers(32)), 16);
  std::vector<std::int32_t> other = numbers(33);
  other[20] = 999;
  const RequestHandle fourth = open(*cache, 3);
  EXPECT_EQ(cache->match_prefix(fourth, other), 16);
  EXPECT_EQ(cache->cut_prefix(second, 31), 16);
  EXPECT_EQ(cache->match_prefix(second, numbers(33)), 16);
  cache->assert_pages_conserved();
}

TEST_F(PrefixCacheTest, ARowBeginsBehindItsPrefixAndItsPositionsFollow) {
  auto cache = make_cache(prefix_config(16));
  Positions positions(ResourceKey{1}, 4, 1, kKey);
  const RequestHandle first = compute(*cache, 0, numbers(40));
  const RequestHandle second = open(*cache, 2);
  positions.ingest_request(info_of(2));
  ASSERT_EQ(cache->match_prefix(second, numbers(40)), 32);
  declare({{second, LabelId::kMain, 8}});
  step.declare<PositionStep>(ResourceKey{1});
  ASSERT_TRUE(admit(*cache).ok());
  const KvPlan planned = plan(*cache);
  context->num_tokens = 8;
  positions.plan(step, *context);
  EXPECT_THAT(staged<std::int32_t>(context->plan<PositionPlan>(ResourceKey{1}).positions),
              ElementsAreArray(numbers(8, 32)));
  EXPECT_THAT(staged<std::int32_t>(planned.token_indices), ElementsAreArray(numbers(8, 32)));
  EXPECT_EQ(planned.page_updates.dim(0), 3) << "the shared pages are new to this row";
  cache->commit(step, *context);
  positions.commit(step, *context);
  EXPECT_EQ(positions.next(second), 40);
  declare({{second, LabelId::kMain, 1}});
  ASSERT_TRUE(admit(*cache).ok());
  EXPECT_TRUE(plan(*cache).starts.empty()) << "only the first step begins behind a prefix";
  write(*cache, second, LabelId::kMain, 32, numbers(8, 32));
  EXPECT_THAT(read(*cache, second, LabelId::kMain), ElementsAreArray(numbers(40)));
  std::ignore = first;
}

TEST_F(PrefixCacheTest, T_KV_8_a_second_writer_keeps_its_copy) {
  auto cache = make_cache(prefix_config(16));
  const RequestHandle first = open(*cache, 0);
  const RequestHandle second = open(*cache, 1);
  ASSERT_TRUE(run_to_end(*cache, {{first, LabelId::kMain, 33}, {second, LabelId::kMain, 49}}));
  cache->extend_prefix(first, numbers(33));
  cache->extend_prefix(second, numbers(49));
  EXPECT_NE(cache->pages(first)[0], cache->pages(second)[0]);
  const RequestHandle third = open(*cache, 2);
  EXPECT_EQ(cache->match_prefix(third, numbers(50)), 48);
  ASSERT_TRUE(run(*cache, {{third, LabelId::kMain, 2}}));
  EXPECT_EQ(cache->pages(third)[0], cache->pages(first)[0]) << "the first writer's";
  EXPECT_EQ(cache->pages(third)[2], cache->pages(second)[2]) << "only the second wrote it";
  cache->assert_pages_conserved();
}

TEST_F(PrefixCacheTest, T_KV_8_pages_nobody_uses_make_room_and_shared_ones_do_not) {
  auto cache = make_cache(prefix_config(7));
  close(*cache, compute(*cache, 0, numbers(48)));
  EXPECT_EQ(cache->arena().num_free(), 3);
  EXPECT_EQ(cache->num_available(), 6);
  const RequestHandle second = open(*cache, 1);
  ASSERT_EQ(cache->match_prefix(second, numbers(33)), 32);
  EXPECT_EQ(cache->num_available(), 4);
  const RequestHandle third = open(*cache, 2);
  ASSERT_TRUE(run_to_end(*cache, {{third, LabelId::kMain, 64}}));
  EXPECT_EQ(cache->num_available(), 0);
  EXPECT_EQ(cache->match_prefix(second, numbers(33)), 32);
  cache->assert_pages_conserved();
  EXPECT_FALSE(run(*cache, {{second, LabelId::kMain, 1}}));
  close(*cache, third);
  ASSERT_TRUE(run(*cache, {{second, LabelId::kMain, 1}}));
  EXPECT_THAT(read(*cache, second, LabelId::kMain).front(), 0);
  cache->assert_pages_conserved();
}

TEST_F(PrefixCacheTest, GeneratedTokensExtendTheChain) {
  auto cache = make_cache(prefix_config(16));
  const RequestHandle first = compute(*cache, 0, numbers(20));
  for (std::int32_t length = 21; length <= 40; ++length) {
    ASSERT_TRUE(run_to_end(*cache, {{first, LabelId::kMain, 1}}));
    cache->extend_prefix(first, numbers(length));
  }
  EXPECT_EQ(cache->prefix_index()->num_pages(), 2);
  const RequestHandle second = open(*cache, 1);
  EXPECT_EQ(cache->match_prefix(second, numbers(60)), 32);
}

TEST_F(PrefixCacheTest, OnlyTokensThatAreKnownAndStoredAreIndexed) {
  auto cache = make_cache(prefix_config(16));
  const RequestHandle first = open(*cache, 0);
  ASSERT_TRUE(run(*cache, {{first, LabelId::kMain, 20}}));
  cache->extend_prefix(first, numbers(60));
  EXPECT_EQ(cache->prefix_index()->num_pages(), 1);
  ASSERT_TRUE(run(*cache, {{first, LabelId::kMain, 20}}));
  cache->extend_prefix(first, numbers(31));
  EXPECT_EQ(cache->prefix_index()->num_pages(), 1);
  cache->drop_prefix(first);
  cache->extend_prefix(first, numbers(40));
  EXPECT_EQ(cache->prefix_index()->num_pages(), 1) << "it holds what is no token";
}

/// The second request's chain goes on behind the first one's pages, which are evicted: its next page must not land below
/// whatever has their place.
TEST_F(PrefixCacheTest, C_6_a_chain_whose_end_was_evicted_begins_anew) {
  auto cache = make_cache(prefix_config(9));
  const RequestHandle first = open(*cache, 0);
  const RequestHandle second = open(*cache, 1);
  ASSERT_TRUE(run_to_end(*cache, {{first, LabelId::kMain, 32}, {second, LabelId::kMain, 32}}));
  cache->extend_prefix(first, numbers(32));
  cache->extend_prefix(second, numbers(32));
  close(*cache, first);
  const RequestHandle third = compute(*cache, 2, numbers(90, 1000));  // takes every page
  ASSERT_EQ(cache->num_available(), 0);
  close(*cache, third);
  ASSERT_TRUE(run_to_end(*cache, {{second, LabelId::kMain, 16}}));
  cache->extend_prefix(second, numbers(48));
  cache->assert_pages_conserved();
  const RequestHandle fourth = open(*cache, 3);
  EXPECT_EQ(cache->match_prefix(fourth, numbers(49)), 48);
  ASSERT_TRUE(run(*cache, {{fourth, LabelId::kMain, 1}}));
  for (std::size_t page = 0; page < 3; ++page) {
    EXPECT_EQ(cache->pages(fourth)[page], cache->pages(second)[page]);
  }
}

TEST_F(PrefixCacheTest, C_6_a_request_removed_before_its_first_step_leaves_its_prefix_to_nobody) {
  auto cache = make_cache(prefix_config(16));
  close(*cache, compute(*cache, 0, numbers(48)));
  const RequestHandle second = open(*cache, 1);
  ASSERT_EQ(cache->match_prefix(second, numbers(48)), 32);
  close(*cache, second);
  const RequestHandle successor = open(*cache, 1, 2);
  ASSERT_TRUE(run(*cache, {{successor, LabelId::kMain, 3}}));
  EXPECT_EQ(cache->stored_length(successor), 3);
  EXPECT_EQ(cache->prefix_index()->num_evictable(), 3);
  cache->assert_pages_conserved();
}

TEST_F(PrefixCacheTest, AStreamCutBackWritesACopyOfAnIndexedPage) {
  auto cache = make_cache(prefix_config(16));
  const RequestHandle first = compute(*cache, 0, numbers(32));
  cache->truncate_to(first, LabelId::kMain, 20, last_epoch);
  ASSERT_TRUE(run(*cache, {{first, LabelId::kMain, 4}}));
  write(*cache, first, LabelId::kMain, 20, {900, 901, 902, 903});
  const RequestHandle second = open(*cache, 1);
  ASSERT_EQ(cache->match_prefix(second, numbers(40)), 32);
  ASSERT_TRUE(run(*cache, {{second, LabelId::kMain, 8}}));
  write(*cache, second, LabelId::kMain, 32, numbers(8, 32));
  EXPECT_THAT(read(*cache, second, LabelId::kMain), ElementsAreArray(numbers(40)));
  cache->assert_pages_conserved();
}

TEST_F(PrefixCacheTest, ARestartedRequestFindsItsOwnPages) {
  auto cache = make_cache(prefix_config(16));
  const RequestHandle first = compute(*cache, 0, numbers(40));
  cache->restart_request(first, last_epoch);
  cache->collect(last_epoch);
  EXPECT_EQ(cache->match_prefix(first, numbers(40)), 32);
}

TEST_F(PrefixCacheTest, RetentionIndexesProtectedPagesAlone) {
  KvCacheConfig config = prefix_config(16);
  config.retention = {.max_tokens = 64, .protected_tokens = 16};
  auto cache = make_cache(config);
  compute(*cache, 0, numbers(60));
  EXPECT_EQ(cache->prefix_index()->num_pages(), 1);
}

TEST_F(PrefixCacheTest, WithoutAPrefixCacheNothingIsFound) {
  auto cache = make_cache(16);
  compute(*cache, 0, numbers(48));
  EXPECT_EQ(cache->match_prefix(open(*cache, 1), numbers(48)), 0);
  EXPECT_EQ(cache->prefix_index(), nullptr);
}

TEST_F(PrefixCacheTest, B_52_several_ranks_have_no_prefix_cache) {
  KvCacheConfig config = prefix_config(16);
  config.world_size = 2;
  auto cache = make_cache(config);
  compute(*cache, 0, numbers(48));
  EXPECT_EQ(cache->match_prefix(open(*cache, 1), numbers(48)), 0);
}

}  // namespace
}  // namespace rigel
