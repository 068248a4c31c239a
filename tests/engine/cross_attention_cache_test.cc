#include "engine/resources/cross_attention_cache.h"

#include "tests/engine/kv_test.h"

#include <gmock/gmock.h>

namespace rigel {
namespace {

using ::testing::ElementsAre;

class CrossAttentionCacheTest : public testing::KvTest {
 protected:
  void SetUp() override {
    KvTest::SetUp();
    if (device != nullptr) {
      cache = std::make_unique<CrossAttentionCache>(kKey, *device, config_of(8));
    }
  }
  CrossAttentionPlan run(std::vector<Segment> queries, std::vector<Segment> writes) {
    step.reset();
    step.segments = std::move(queries);
    step.declare<KvStep>(kKey).segments = std::move(writes);
    EXPECT_TRUE(cache->admit(step, *context).ok());
    context->epoch = ++last_epoch;
    staging->reset();
    cache->plan(step, *context);
    cache->commit(step, *context);
    return context->plan<CrossAttentionPlan>(kKey);
  }
  std::unique_ptr<CrossAttentionCache> cache;
};

TEST_F(CrossAttentionCacheTest, EveryQuerySeesAllKeysFromTheStepThatWritesThemOn) {
  const RequestHandle first{1, 1};
  const RequestHandle second{2, 1};
  cache->ingest_request(info_of(1));
  cache->ingest_request(info_of(2));
  const CrossAttentionPlan prefill =
      run({{first, LabelId::kMain, 2}, {second, LabelId::kMain, 1}}, {{first, LabelId::kMain, 20}});
  EXPECT_THAT(staged<std::int32_t>(prefill.query_streams), ElementsAre(1, 1, -1));
  EXPECT_THAT(staged<std::int32_t>(prefill.last_keys), ElementsAre(19, 19, -1));
  EXPECT_EQ(prefill.writes.page_updates.dim(0), 2);
  EXPECT_EQ(prefill.writes.token_indices.dim(0), 20);
  const CrossAttentionPlan decode =
      run({{first, LabelId::kMain, 1}, {{-1, 0}, LabelId::kMain, 1}}, {{first, LabelId::kMain, 0}});
  EXPECT_THAT(staged<std::int32_t>(decode.query_streams), ElementsAre(1, -1));
  EXPECT_THAT(staged<std::int32_t>(decode.last_keys), ElementsAre(19, -1));
  EXPECT_EQ(decode.writes.token_indices.dim(0), 0);
  EXPECT_EQ(cache->store().stored_length(first), 20) << "queries are not stored";
}

TEST_F(CrossAttentionCacheTest, KeysAreWrittenOnce) {
  const RequestHandle handle{0, 1};
  cache->ingest_request(info_of(0));
  run({{handle, LabelId::kMain, 1}}, {{handle, LabelId::kMain, 20}});
  step.reset();
  step.segments = {{handle, LabelId::kMain, 1}};
  step.declare<KvStep>(kKey).segments = {{handle, LabelId::kMain, 1}};
  EXPECT_THROW(std::ignore = cache->admit(step, *context), CheckError);
  cache->restart_request(handle, last_epoch);
  EXPECT_TRUE(cache->admit(step, *context).ok());
}

TEST_F(CrossAttentionCacheTest, AStepSaysWhoseKeysItUses) {
  const RequestHandle handle{0, 1};
  cache->ingest_request(info_of(0));
  step.reset();
  step.segments = {{handle, LabelId::kMain, 1}};
  step.declare<KvStep>(kKey);
  EXPECT_THROW(std::ignore = cache->admit(step, *context), CheckError);
}

TEST_F(CrossAttentionCacheTest, SizesThatMakeNoSenseAreRefused) {
  KvCacheConfig config = config_of(8);
  config.enable_prefix_cache = true;
  EXPECT_THROW(CrossAttentionCache(kKey, *device, config), CheckError);
  config = config_of(8);
  config.num_labels = 2;
  EXPECT_THROW(CrossAttentionCache(kKey, *device, config), CheckError);
}

}  // namespace
}  // namespace rigel
