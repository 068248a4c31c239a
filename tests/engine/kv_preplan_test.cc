#include "engine/step_runner.h"
#include "tests/engine/kv_test.h"

#include <gmock/gmock.h>

#include <map>
#include <random>

namespace rigel {
namespace {

using testing::kAside;

/// A cache behind a runner, as an engine has it.
class KvPreplanTest : public testing::KvTest {
 protected:
  void SetUp() override {
    KvTest::SetUp();
    if (device == nullptr) {
      return;
    }
    KvCacheConfig config = config_of(24);
    config.num_labels = 2;
    config.enable_prefix_cache = true;
    resources.add("kv", std::make_unique<KvCache>(kKey, *device, config));
    cache = &resources.get<KvCache>("kv");
    runner.emplace(resources);
    for (std::int32_t row = 0; row < 3; ++row) {
      handles.push_back(open(*cache, row));
    }
  }
  void use(std::span<const RequestHandle> lanes) {
    context->batch.handles = lanes;
    context->epoch = last_epoch + 1;
  }
  /// Stages the declared step; false where it was refused.
  bool stage() {
    staging->reset();
    if (!runner->pre_admit(step, *context).ok()) {
      return false;
    }
    runner->pre_plan(step, *context);
    return true;
  }
  bool launch() {
    context->epoch = last_epoch + 1;
    if (!runner->admit(step, *context).ok()) {
      return false;
    }
    runner->plan(step, *context);
    runner->commit(step, *context);
    ++last_epoch;
    return true;
  }

  /// All that a dropped step must leave as it was.
  struct Snapshot {
    std::vector<std::vector<PageIndex>> pages;
    std::vector<std::int32_t> lengths;
    std::vector<std::uint64_t> generations;
    std::int32_t num_free = 0;
    friend bool operator==(const Snapshot&, const Snapshot&) = default;
  };
  Snapshot snapshot() {
    Snapshot now;
    for (const RequestHandle handle : handles) {
      for (const LabelId label : {LabelId::kMain, kAside}) {
        const auto pages = cache->pages(handle, label);
        now.pages.emplace_back(pages.begin(), pages.end());
        now.lengths.push_back(cache->stored_length(handle, label));
        now.generations.push_back(cache->generation(handle, label));
      }
    }
    now.num_free = cache->num_available();
    return now;
  }

  NodeResources resources;
  KvCache* cache = nullptr;
  std::optional<StepRunner> runner;
  std::vector<RequestHandle> handles;
};

TEST_F(KvPreplanTest, T_KV_6_a_dropped_step_leaves_everything_as_it_was) {
  std::mt19937 random(11);
  use(handles);
  int num_dropped = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<Segment> segments;
    for (const RequestHandle handle : handles) {
      for (const LabelId label : {LabelId::kMain, kAside}) {
        if (random() % 2 == 0) {
          segments.push_back({handle, label, static_cast<std::int32_t>(random() % 6)});
        }
      }
    }
    KvStep& kv = declare(std::move(segments));
    if (random() % 3 == 0) {
      kv.pre_forks = {{LabelId::kMain, kAside}};
    }
    if (random() % 3 == 0) {
      kv.post_forks = {{kAside, LabelId::kMain}};
    }
    const Snapshot before = snapshot();
    const bool fits = stage();
    num_dropped += fits ? 1 : 0;
    cache->assert_pages_conserved();
    runner->clear_preplan();
    ASSERT_EQ(snapshot(), before) << "round " << round << (fits ? "" : ", refused");
    cache->assert_pages_conserved();
    if (random() % 2 == 0 && !launch()) {
      const RequestHandle victim = handles[random() % handles.size()];
      cache->restart_request(victim, last_epoch);
    }
    cache->collect(last_epoch);
    for (const RequestHandle handle : handles) {
      for (const LabelId label : {LabelId::kMain, kAside}) {
        const std::int32_t length = cache->stored_length(handle, label);
        if (length > 0 && random() % 4 == 0) {  // often into a page that the other label has too
          cache->truncate_to(handle, label,
                             length - static_cast<std::int32_t>(
                                          random() % static_cast<unsigned>(std::min(length, 9))),
                             last_epoch);
        }
      }
      if (cache->stored_length(handle) > 100 || cache->stored_length(handle, kAside) > 100) {
        cache->restart_request(handle, last_epoch);
      }
    }
  }
  EXPECT_GT(num_dropped, 100);
}

TEST_F(KvPreplanTest, T_KV_6_a_dropped_step_publishes_its_pages_again_later) {
  use(handles);
  declare({{handles[0], LabelId::kMain, 20}});
  ASSERT_TRUE(stage());
  EXPECT_EQ(context->plan<KvPlan>(kKey).page_updates.dim(0), 2);
  runner->clear_preplan();
  staging->reset();
  ASSERT_TRUE(launch());
  EXPECT_EQ(context->plan<KvPlan>(kKey).page_updates.dim(0), 2);
}

TEST_F(KvPreplanTest, T_KV_6_a_dropped_first_step_keeps_its_cached_prefix) {
  use(handles);
  declare({{handles[0], LabelId::kMain, 40}});
  ASSERT_TRUE(launch());
  cache->extend_prefix(handles[0], numbers(40));
  ASSERT_EQ(cache->match_prefix(handles[1], numbers(40)), 32);
  declare({{handles[1], LabelId::kMain, 8}});
  ASSERT_TRUE(stage());
  EXPECT_EQ(cache->stored_length(handles[1]), 32);
  runner->clear_preplan();
  EXPECT_EQ(cache->stored_length(handles[1]), 0);
  EXPECT_EQ(cache->match_prefix(handles[1], numbers(40)), 32);
  cache->assert_pages_conserved();
  staging->reset();
  ASSERT_TRUE(launch());
  EXPECT_EQ(cache->stored_length(handles[1]), 40);
}

TEST_F(KvPreplanTest, AStagedStepTakenOverGivesWhatAnInlineStepGives) {
  use(handles);
  declare({{handles[0], LabelId::kMain, 20}, {handles[1], LabelId::kMain, 1}});
  ASSERT_TRUE(stage());
  const auto staged_indices = staged<std::int32_t>(context->plan<KvPlan>(kKey).token_indices);
  context->reset();  // as the engine begins a launch
  ASSERT_TRUE(launch());
  EXPECT_FALSE(runner->is_staged());
  EXPECT_EQ(staged<std::int32_t>(context->plan<KvPlan>(kKey).token_indices), staged_indices);
  EXPECT_EQ(cache->stored_length(handles[0]), 20);
  EXPECT_EQ(cache->num_pages(handles[0]), 2);
  cache->assert_pages_conserved();
}

/// The page updates of a step that another one pushed aside must reach the device with the next step that has them.
TEST_F(KvPreplanTest, B_07_a_staged_decode_is_not_taken_for_the_prefill_that_comes_first) {
  use(handles);
  declare({{handles[0], LabelId::kMain, 16}});
  ASSERT_TRUE(launch());
  staging->reset();
  declare({{handles[0], LabelId::kMain, 1}});
  ASSERT_TRUE(stage());
  declare({{handles[1], LabelId::kMain, 5}});
  staging->reset();
  ASSERT_TRUE(launch());
  EXPECT_EQ(cache->stored_length(handles[1]), 5);
  EXPECT_EQ(cache->stored_length(handles[0]), 16);
  declare({{handles[0], LabelId::kMain, 1}});
  staging->reset();
  ASSERT_TRUE(launch());
  EXPECT_EQ(context->plan<KvPlan>(kKey).page_updates.dim(0), 1) << "the second page, unknown yet";
  EXPECT_EQ(cache->stored_length(handles[0]), 17);
}

TEST_F(KvPreplanTest, B_08_a_request_dropped_after_staging_makes_the_stage_stale) {
  use(handles);
  declare({{handles[0], LabelId::kMain, 3}, {handles[1], LabelId::kMain, 4}});
  ASSERT_TRUE(stage());
  const std::vector<RequestHandle> remaining{handles[0]};
  use(remaining);
  declare({{handles[0], LabelId::kMain, 3}});
  staging->reset();
  ASSERT_TRUE(launch());
  EXPECT_EQ(cache->stored_length(handles[0]), 3);
  EXPECT_EQ(cache->stored_length(handles[1]), 0);
  EXPECT_EQ(cache->num_pages(handles[1]), 0);
  EXPECT_EQ(context->plan<KvPlan>(kKey).token_indices.dim(0), 3);
  cache->assert_pages_conserved();
}

TEST_F(KvPreplanTest, ARequestOfAStagedStepIsRemovedOnlyOnceTheStageIsDropped) {
  use(handles);
  declare({{handles[0], LabelId::kMain, 3}});
  ASSERT_TRUE(stage());
  EXPECT_THROW(cache->remove_request(handles[0], 0), CheckError);
  runner->clear_preplan_of(handles[0]);
  EXPECT_FALSE(runner->is_staged());
  EXPECT_NO_THROW(cache->remove_request(handles[0], 0));
}

}  // namespace
}  // namespace rigel
