#include "kernels/rotary.h"
#include "tests/engine/kv_test.h"

#include <gmock/gmock.h>

namespace rigel {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using Reason = AdmitOutcome::Reason;

class KvCacheTest : public testing::KvTest {};

TEST_F(KvCacheTest, T_KV_1_spans_around_a_page_take_the_right_pages) {
  auto cache = make_cache(16);
  const RequestHandle handle = open(*cache, 1);
  ASSERT_TRUE(run(*cache, {{handle, LabelId::kMain, 15}}));
  EXPECT_EQ(cache->num_pages(handle), 1);
  ASSERT_TRUE(run(*cache, {{handle, LabelId::kMain, 1}}));
  EXPECT_EQ(cache->num_pages(handle), 1);
  ASSERT_TRUE(run(*cache, {{handle, LabelId::kMain, 1}}));
  EXPECT_EQ(cache->num_pages(handle), 2);
  EXPECT_EQ(cache->stored_length(handle), 17);
  const RequestHandle other = open(*cache, 2);
  for (const std::int32_t span : {kPage - 1, kPage, kPage + 1}) {
    ASSERT_TRUE(run(*cache, {{other, LabelId::kMain, span}}));
    EXPECT_EQ(cache->num_pages(other), (cache->stored_length(other) + kPage - 1) / kPage);
  }
}

TEST_F(KvCacheTest, T_KV_2_a_refused_step_leaves_lengths_and_says_what_is_short) {
  auto cache = make_cache(4);
  const RequestHandle first = open(*cache, 0);
  const RequestHandle second = open(*cache, 2);
  ASSERT_TRUE(run(*cache, {{first, LabelId::kMain, 16}}));
  declare({{first, LabelId::kMain, 1}, {second, LabelId::kMain, 40}});
  const AdmitOutcome outcome = admit(*cache);
  EXPECT_EQ(outcome.reason, Reason::kAllocationFailed);
  EXPECT_EQ(outcome.pages_short, 2);
  EXPECT_EQ(outcome.handle, second);
  EXPECT_EQ(cache->stored_length(first), 16);
  EXPECT_EQ(cache->stored_length(second), 0);
  cache->assert_pages_conserved();
}

TEST_F(KvCacheTest, T_KV_2_a_step_that_is_refused_or_wrong_holds_none_of_its_requests) {
  auto cache = make_cache(6);
  const RequestHandle first = open(*cache, 0);
  const RequestHandle second = open(*cache, 1);
  ASSERT_TRUE(run(*cache, {{first, LabelId::kMain, 20}, {second, LabelId::kMain, 20}}));
  const auto truncates = [&] {
    cache->truncate_to(first, LabelId::kMain, 20, last_epoch);  // an error where a step holds it
    cache->truncate_to(second, LabelId::kMain, 20, last_epoch);
  };
  declare({{first, LabelId::kMain, 1}, {second, LabelId::kMain, 60}});
  EXPECT_FALSE(admit(*cache).ok());
  EXPECT_NO_THROW(truncates());
  declare({{first, LabelId::kMain, 1}, {{3, 1}, LabelId::kMain, 1}});
  EXPECT_THROW(std::ignore = admit(*cache), CheckError);
  EXPECT_NO_THROW(truncates());
  declare({{first, LabelId::kMain, 1}, {second, LabelId::kMain, 1}});
  EXPECT_TRUE(admit(*cache).ok());
  EXPECT_THROW(truncates(), CheckError);
}

TEST_F(KvCacheTest, T_KV_3_a_retry_uses_the_pages_that_were_reserved) {
  auto cache = make_cache(4);
  const RequestHandle first = open(*cache, 0);
  const RequestHandle second = open(*cache, 1);
  ASSERT_TRUE(run(*cache, {{first, LabelId::kMain, 20}}));
  EXPECT_FALSE(run(*cache, {{second, LabelId::kMain, 32}}));
  ASSERT_EQ(cache->num_pages(second), 1);
  const PageIndex reserved = cache->pages(second)[0];
  cache->remove_request(first, last_epoch);
  cache->collect(last_epoch);
  EXPECT_TRUE(run(*cache, {{second, LabelId::kMain, 32}}));
  EXPECT_EQ(cache->num_pages(second), 2);
  EXPECT_EQ(cache->pages(second)[0], reserved);
}

TEST_F(KvCacheTest, ARequestThatCanNeverFitIsToldSo) {
  auto cache = make_cache(4);
  const RequestHandle handle = open(*cache, 0);
  ASSERT_TRUE(run(*cache, {{handle, LabelId::kMain, 40}}));
  declare({{handle, LabelId::kMain, 20}});
  EXPECT_EQ(admit(*cache).reason, Reason::kNeverFits);
}

TEST_F(KvCacheTest, AdmissionAsksForThePromptAndOnePage) {
  auto cache = make_cache(6);
  EXPECT_TRUE(cache->check_admission(4 * kPage, 0).ok());
  EXPECT_EQ(cache->check_admission(4 * kPage, 1).reason, Reason::kNotReady);
  EXPECT_EQ(cache->check_admission(4 * kPage, 3).pages_short, 3);
  EXPECT_TRUE(cache->check_admission(5 * kPage, 0).ok()) << "alone it may use the last page";
  EXPECT_EQ(cache->check_admission(5 * kPage + 1, 0).reason, Reason::kNeverFits);
  EXPECT_EQ(cache->check_admission(257, 0).reason, Reason::kNeverFits);
}

TEST_F(KvCacheTest, B_20_ingesting_twice_keeps_the_length) {
  auto cache = make_cache(8);
  const RequestHandle handle = open(*cache, 3);
  ASSERT_TRUE(run(*cache, {{handle, LabelId::kMain, 5}}));
  open(*cache, 3);
  EXPECT_EQ(cache->stored_length(handle), 5);
}

TEST_F(KvCacheTest, T_KV_9_a_second_ingest_keeps_the_stream_and_its_pages) {
  auto cache = make_cache(8);
  const RequestHandle handle = open(*cache, 3);
  ASSERT_TRUE(run(*cache, {{handle, LabelId::kMain, 21}}));
  write(*cache, handle, LabelId::kMain, 0, numbers(21, 50));
  open(*cache, 3);
  ASSERT_TRUE(run(*cache, {{handle, LabelId::kMain, 1}}));
  write(*cache, handle, LabelId::kMain, 21, {71});
  EXPECT_THAT(read(*cache, handle, LabelId::kMain), ElementsAreArray(numbers(22, 50)));
  cache->assert_pages_conserved();
}

TEST_F(KvCacheTest, OnlyNewPagesAreSentToTheDevice) {
  auto cache = make_cache(8);
  const RequestHandle handle = open(*cache, 1);
  declare({{handle, LabelId::kMain, 17}});
  ASSERT_TRUE(admit(*cache).ok());
  EXPECT_THAT(staged<std::int32_t>(plan(*cache).page_updates), ElementsAre(1, 0, 1, 1, 1, 2));
  cache->commit(step, *context);
  declare({{handle, LabelId::kMain, 1}});
  ASSERT_TRUE(admit(*cache).ok());
  EXPECT_EQ(plan(*cache).page_updates.dim(0), 0);
}

TEST_F(KvCacheTest, ARestartedRowOwnsNothingAndPublishesItsPagesAnew) {
  auto cache = make_cache(8);
  const RequestHandle handle = open(*cache, 0);
  ASSERT_TRUE(run(*cache, {{handle, LabelId::kMain, 30}}));
  cache->restart_request(handle, /*last_touch=*/4);
  EXPECT_EQ(cache->stored_length(handle), 0);
  EXPECT_EQ(cache->arena().num_retiring(), 2);
  cache->collect(4);
  ASSERT_TRUE(run(*cache, {{handle, LabelId::kMain, 3}}));
  EXPECT_EQ(context->plan<KvPlan>(kKey).page_updates.dim(0), 1);
}

TEST_F(KvCacheTest, AHandleOfAnEarlierOwnerIsRefused) {
  auto cache = make_cache(4);
  const RequestHandle first = open(*cache, 2, 1);
  cache->remove_request(first, 0);
  open(*cache, 2, 2);
  EXPECT_THROW(std::ignore = cache->stored_length(first), CheckError);
}

/// A step of two live tokens between padding, on the device: padding has span 1, as in a replay of more lanes.
TEST_F(KvCacheTest, T_KV_5_padding_takes_no_page_and_writes_none) {
  auto cache = make_cache(4);
  const RequestHandle first = open(*cache, 0);
  const RequestHandle second = open(*cache, 2);
  ASSERT_TRUE(run(*cache, {{first, LabelId::kMain, 3}, {second, LabelId::kMain, 16}}));
  const std::int32_t num_free = cache->arena().num_free();
  fill_bytes(stream->ref(), cache->layer(0), 0);
  const std::vector<float> before = layer_values(*cache, 0);

  declare({{{-1, 0}, LabelId::kMain, 1},
           {first, LabelId::kMain, 1},
           {{-2, 0}, LabelId::kMain, 1},
           {second, LabelId::kMain, 1},
           {{-3, 0}, LabelId::kMain, 1}});
  ASSERT_TRUE(admit(*cache).ok());
  const KvPlan planned = plan(*cache);
  constexpr std::int64_t kTokens = 5;
  DeviceBuffer qkv(*device, Dtype::kF32, {kTokens, 6 * 8});
  fill_bytes(stream->ref(), qkv.view(Dtype::kF32, {kTokens, 6 * 8}), 0x3F);
  DeviceBuffer angles(*device, Dtype::kF32, {kTokens, 4, 2});
  fill_bytes(stream->ref(), angles.view(Dtype::kF32, {kTokens, 4, 2}), 0x3F);
  kernels::rotary_append_kv(stream->ref(), {.qkv = qkv.view(Dtype::kF32, {kTokens, 6 * 8}),
                                            .angles = angles.view(Dtype::kF32, {kTokens, 4, 2}),
                                            .token_rows = planned.token_streams,
                                            .positions = planned.token_indices,
                                            .page_table = cache->page_table(),
                                            .kv_layer = cache->layer(0),
                                            .num_heads = 2});
  cache->commit(step, *context);
  EXPECT_EQ(cache->arena().num_free(), num_free - 1) << "the second row began a page";
  const std::vector<float> after = layer_values(*cache, 0);
  std::vector<std::size_t> changed;
  for (std::size_t at = 0; at < after.size(); at += 8) {
    if (!std::equal(after.begin() + static_cast<std::ptrdiff_t>(at),
                    after.begin() + static_cast<std::ptrdiff_t>(at) + 8,
                    before.begin() + static_cast<std::ptrdiff_t>(at))) {
      changed.push_back(at / 8);
    }
  }
  std::vector<std::size_t> expected;
  for (const auto& [page, offset] :
       {std::pair{cache->pages(first)[0], 3}, std::pair{cache->pages(second)[1], 0}}) {
    for (std::int32_t part = 0; part < 4; ++part) {  // keys and values of two heads
      expected.push_back(place(*cache, page, offset + part * kPage) / 8);
    }
  }
  std::ranges::sort(expected);
  EXPECT_EQ(changed, expected);
}

TEST_F(KvCacheTest, B_19_steps_of_padding_alone_leave_every_page_free) {
  auto cache = make_cache(4);
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(run(*cache, {{{-1, 0}, LabelId::kMain, 100}, {{-2, 0}, LabelId::kMain, 1}}));
    EXPECT_EQ(context->plan<KvPlan>(kKey).page_updates.dim(0), 0);
  }
  EXPECT_EQ(cache->arena().num_free(), cache->arena().capacity());
}

TEST_F(KvCacheTest, T_KV_12_decode_steps_address_as_one_packed_step_does) {
  auto cache = make_cache(16);
  const RequestHandle packed = open(*cache, 0);
  const RequestHandle stepped = open(*cache, 1);
  ASSERT_TRUE(run(*cache, {{packed, LabelId::kMain, 7}, {stepped, LabelId::kMain, 7}}));
  declare({{packed, LabelId::kMain, 20}});
  ASSERT_TRUE(admit(*cache).ok());
  const auto at_once = staged<std::int32_t>(plan(*cache).token_indices);
  cache->commit(step, *context);
  std::vector<std::int32_t> one_by_one;
  for (int token = 0; token < 20; ++token) {
    declare({{stepped, LabelId::kMain, 1}});
    ASSERT_TRUE(admit(*cache).ok());
    const auto indices = staged<std::int32_t>(plan(*cache).token_indices);
    one_by_one.insert(one_by_one.end(), indices.begin(), indices.end());
    cache->commit(step, *context);
  }
  EXPECT_EQ(at_once, one_by_one);
  EXPECT_THAT(at_once, ElementsAreArray(numbers(20, 7)));
  const auto table = staged<std::int32_t>(cache->page_table());
  const auto columns = static_cast<std::size_t>(cache->max_pages_per_row());
  for (std::size_t index = 0; index < 2; ++index) {
    EXPECT_EQ(PageIndex{table[index]}, cache->pages(packed)[index]);
    EXPECT_EQ(PageIndex{table[columns + index]}, cache->pages(stepped)[index]);
  }
}

TEST_F(KvCacheTest, ASpanOfZeroReadsAndReservesNothing) {
  auto cache = make_cache(4);
  const RequestHandle handle = open(*cache, 0);
  ASSERT_TRUE(run(*cache, {{handle, LabelId::kMain, 16}}));
  const std::uint64_t generation = cache->generation(handle);
  ASSERT_TRUE(run(*cache, {{handle, LabelId::kMain, 0}}));
  EXPECT_EQ(cache->num_pages(handle), 1);
  EXPECT_EQ(cache->generation(handle), generation);
}

TEST_F(KvCacheTest, AStreamHasOneSegmentAStep) {
  auto cache = make_cache(4);
  const RequestHandle handle = open(*cache, 0);
  declare({{handle, LabelId::kMain, 1}, {handle, LabelId::kMain, 1}});
  EXPECT_THROW(std::ignore = admit(*cache), CheckError);
}

TEST_F(KvCacheTest, AStepThatDoesNotCommitKeepsNothing) {
  auto cache = make_cache(4);
  const RequestHandle handle = open(*cache, 0);
  declare({{handle, LabelId::kMain, 4}}).commit = false;
  ASSERT_TRUE(run(*cache));
  EXPECT_EQ(cache->stored_length(handle), 0);
}

TEST_F(KvCacheTest, B_64_a_refusal_blames_one_request_however_often_it_is_tried) {
  auto cache = make_cache(4);
  const RequestHandle first = open(*cache, 0);
  const RequestHandle second = open(*cache, 1);
  ASSERT_TRUE(run(*cache, {{first, LabelId::kMain, 32}, {second, LabelId::kMain, 16}}));
  EXPECT_EQ(cache->reclaimable(first), 0);
  for (int attempt = 0; attempt < 3; ++attempt) {
    declare({{first, LabelId::kMain, 1}, {second, LabelId::kMain, 1}});
    const AdmitOutcome outcome = admit(*cache);
    EXPECT_EQ(outcome.reason, Reason::kAllocationFailed);
    EXPECT_EQ(outcome.handle, first);
  }
  cache->remove_request(second, last_epoch);
  cache->collect(last_epoch);
  EXPECT_TRUE(run(*cache, {{first, LabelId::kMain, 1}}));
}

TEST_F(KvCacheTest, TruncationForgetsTokensAndGivesBackTheirPages) {
  auto cache = make_cache(8);
  const RequestHandle handle = open(*cache, 0);
  ASSERT_TRUE(run_to_end(*cache, {{handle, LabelId::kMain, 40}}));
  const std::uint64_t generation = cache->generation(handle);
  cache->truncate_to(handle, LabelId::kMain, 17, last_epoch);
  EXPECT_EQ(cache->stored_length(handle), 17);
  EXPECT_EQ(cache->num_pages(handle), 2);
  EXPECT_GT(cache->generation(handle), generation);
  cache->truncate_to(handle, LabelId::kMain, 16, last_epoch);
  EXPECT_EQ(cache->num_pages(handle), 1);
  EXPECT_THROW(cache->truncate_to(handle, LabelId::kMain, 17, last_epoch), CheckError);
  declare({{handle, LabelId::kMain, 1}});
  ASSERT_TRUE(admit(*cache).ok());
  EXPECT_THROW(cache->truncate_to(handle, LabelId::kMain, 3, last_epoch), CheckError);
  cache->abandon(step);
  EXPECT_NO_THROW(cache->truncate_to(handle, LabelId::kMain, 3, last_epoch));
  cache->assert_pages_conserved();
}

TEST_F(KvCacheTest, AWindowLetsOldPagesGoWhereTheyAre) {
  KvCacheConfig config = config_of(16);
  config.retention = {.max_tokens = 20};
  auto cache = make_cache(config);
  const RequestHandle handle = open(*cache, 0);
  ASSERT_TRUE(run_to_end(*cache, {{handle, LabelId::kMain, 50}}));
  EXPECT_EQ(cache->stored_length(handle), 50);
  EXPECT_EQ(cache->num_pages(handle), 3) << "tokens 30 to 49 are in pages 1 to 3";
  EXPECT_EQ(cache->pages(handle)[0], kNoPage);
  for (int token = 0; token < 100; ++token) {
    ASSERT_TRUE(run_to_end(*cache, {{handle, LabelId::kMain, 1}}));
    ASSERT_LE(cache->num_pages(handle), 3);
  }
  cache->assert_pages_conserved();
  cache->remove_request(handle, last_epoch);
  cache->collect(last_epoch);
  EXPECT_EQ(cache->arena().num_free(), cache->arena().capacity());
}

TEST_F(KvCacheTest, WithProtectedTokensLaterPagesMoveUp) {
  KvCacheConfig config = config_of(16);
  config.retention = {.max_tokens = 16, .protected_tokens = 4};
  auto cache = make_cache(config);
  const RequestHandle handle = open(*cache, 0);
  declare({{handle, LabelId::kMain, 64}});
  ASSERT_TRUE(admit(*cache).ok());
  plan(*cache);
  write(*cache, handle, LabelId::kMain, 0, numbers(64));
  cache->commit(step, *context);
  cache->collect(last_epoch);
  std::vector<std::int32_t> expected = numbers(16);
  for (const std::int32_t token : numbers(16, 48)) {
    expected.push_back(token);
  }
  EXPECT_THAT(read(*cache, handle, LabelId::kMain), ElementsAreArray(expected));
  ASSERT_TRUE(run(*cache, {{handle, LabelId::kMain, 1}}));
  const auto table = staged<std::int32_t>(cache->page_table());
  for (std::size_t index = 0; index < 3; ++index) {
    EXPECT_EQ(PageIndex{table[index]}, cache->pages(handle)[index]);
  }
  cache->assert_pages_conserved();
}

}  // namespace
}  // namespace rigel
