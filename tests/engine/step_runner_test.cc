#include "engine/step_runner.h"

#include "engine/resources/attention_planner.h"
#include "engine/resources/positions.h"
#include "tests/engine/allocation_count.h"
#include "tests/engine/kv_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

namespace rigel {
namespace {

using ::testing::ElementsAre;

/// Notes what is asked of it.
class RecordingResource final : public Resource {
 public:
  RecordingResource(ResourceKey key, std::string name, std::vector<ResourceKey> needs,
                    std::vector<std::string>& calls)
      : Resource(key), name_(std::move(name)), needs_(std::move(needs)), calls_(calls) {}

  std::span<const ResourceKey> depends_on() const override { return needs_; }
  AdmitOutcome admit(const SubmoduleStep&, const StepContext&) override {
    calls_.push_back("admit " + name_);
    return refuses ? AdmitOutcome{AdmitOutcome::Reason::kAllocationFailed, 1, {}} : AdmitOutcome{};
  }
  void plan(const SubmoduleStep&, StepContext& context) override {
    calls_.push_back("plan " + name_);
    for (const ResourceKey key : needs_) {
      seen_tiles += context.plan<AttentionPlan>(key).num_decode_tokens;
    }
    AttentionPlan planned;
    planned.num_decode_tokens = 1;
    context.set_plan(key(), planned);
  }
  void commit(const SubmoduleStep&, const StepContext&) override {
    calls_.push_back("commit " + name_);
  }
  bool supports_preplan() const override { return preplans; }
  void begin_preplan() override { calls_.push_back("begin " + name_); }
  void promote(Epoch) override { calls_.push_back("promote " + name_); }
  void clear_preplan() override { calls_.push_back("clear " + name_); }
  bool is_offloaded(RequestHandle) const override { return offloaded; }
  bool can_reload(RequestHandle) const override { return fits; }
  bool supports_eviction() const override { return true; }
  bool offload(RequestHandle, StreamRef, Epoch) override {
    calls_.push_back("offload " + name_);
    return offloaded = true;
  }
  bool reload(RequestHandle, StreamRef, Epoch) override {
    calls_.push_back("reload " + name_);
    offloaded = offloaded && reload_fails;
    return !offloaded;
  }

  bool refuses = false;
  bool preplans = false;
  bool offloaded = false;
  bool fits = true;
  bool reload_fails = false;
  std::int64_t seen_tiles = 0;

 private:
  std::string name_;
  std::vector<ResourceKey> needs_;
  std::vector<std::string>& calls_;
};

class StepRunnerTest : public rigel::testing::EngineTest {
 protected:
  RecordingResource& add(const std::string& name, std::vector<ResourceKey> needs) {
    auto resource =
        std::make_unique<RecordingResource>(resources.next_key(), name, std::move(needs), calls);
    RecordingResource& added = *resource;
    resources.add(name, std::move(resource));
    return added;
  }
  void declare(std::initializer_list<int> keys) {
    for (const int key : keys) {
      step.declare<AttentionStep>(ResourceKey(static_cast<std::uint16_t>(key)));
    }
  }

  std::vector<std::string> calls;
  NodeResources resources;
  SubmoduleStep step;
};

TEST_F(StepRunnerTest, T_RS_1_cycles_and_unknown_dependencies_are_refused) {
  add("a", {ResourceKey{1}});
  EXPECT_THROW(StepRunner{resources}, CheckError);
  add("b", {ResourceKey{0}});
  EXPECT_THROW(StepRunner{resources}, CheckError);
}

TEST_F(StepRunnerTest, T_RS_2_dependencies_come_first_and_names_decide_among_equals) {
  add("zebra", {});
  add("attention", {ResourceKey{2}});
  add("kv", {});
  declare({0, 1, 2});
  StepRunner(resources).plan(step, *context);
  EXPECT_THAT(calls, ElementsAre("plan kv", "plan attention", "plan zebra"));
}

TEST_F(StepRunnerTest, T_RS_4_a_refusal_stops_the_sweep) {
  add("a", {});
  add("b", {}).refuses = true;
  add("c", {});
  declare({0, 1, 2});
  const AdmitOutcome outcome = StepRunner(resources).admit(step, *context);
  EXPECT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.resource, ResourceKey{1});
  EXPECT_THAT(calls, ElementsAre("admit a", "admit b"));
}

TEST_F(StepRunnerTest, ResourcesThatAStepDoesNotDeclareAreLeftAlone) {
  add("a", {});
  add("b", {});
  declare({1});
  StepRunner runner(resources);
  EXPECT_TRUE(runner.admit(step, *context).ok());
  runner.commit(step, *context);
  EXPECT_THAT(calls, ElementsAre("admit b", "commit b"));
}

TEST_F(StepRunnerTest, T_RS_1_an_undeclared_key_is_named_with_what_there_is) {
  add("cache", {});
  declare({0, 7});
  try {
    std::ignore = StepRunner(resources).admit(step, *context);
    FAIL() << "took resource 7";
  } catch (const CheckError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("7"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("cache"));
  }
}

TEST_F(StepRunnerTest, T_RS_1_who_preplans_depends_on_none_that_does_not) {
  add("cache", {});
  RecordingResource& planner = add("planner", {ResourceKey{0}});
  EXPECT_NO_THROW(StepRunner{resources});
  planner.preplans = true;
  EXPECT_THROW(StepRunner{resources}, CheckError);
}

TEST_F(StepRunnerTest, T_RS_6_a_plan_sees_what_it_depends_on) {
  RecordingResource& planner = add("a", {ResourceKey{1}, ResourceKey{2}});
  add("b", {});
  add("c", {ResourceKey{1}});
  declare({0, 1, 2});
  StepRunner(resources).plan(step, *context);
  EXPECT_EQ(planner.seen_tiles, 2);
}

/// A runner with a staged step of the resources "cache", which pre-plans, and "sampler", which does not.
class StagedStepTest : public StepRunnerTest {
 protected:
  void SetUp() override {
    StepRunnerTest::SetUp();
    if (device == nullptr) {
      return;
    }
    add("cache", {}).preplans = true;
    add("sampler", {});
    runner.emplace(resources);
    declare_all();
    ASSERT_TRUE(runner->pre_admit(step, *context).ok());
    runner->pre_plan(step, *context);
    calls.clear();
  }
  void declare_all() {
    step.reset();
    declare({0, 1});
    step.segments = {{{0, 1}, LabelId::kMain, 1}, {{1, 1}, LabelId::kMain, 1}};
    handles = {{0, 1}, {1, 1}};
    context->batch.handles = handles;
  }
  /// Whether the step as it is now takes over what was staged.
  bool is_taken() {
    std::ignore = runner->admit(step, *context);
    runner->plan(step, *context);
    const bool taken = std::ranges::find(calls, "promote cache") != calls.end();
    EXPECT_NE(taken, std::ranges::find(calls, "clear cache") != calls.end());
    return taken;
  }

  std::optional<StepRunner> runner;
  std::vector<RequestHandle> handles;
};

TEST_F(StagedStepTest, T_RS_3_the_same_step_takes_over_what_was_staged) {
  context->reset();
  EXPECT_TRUE(runner->admit(step, *context).ok());
  runner->plan(step, *context);
  EXPECT_THAT(calls, ElementsAre("admit sampler", "promote cache", "plan sampler"));
  EXPECT_EQ(context->plan<AttentionPlan>(ResourceKey{0}).num_decode_tokens, 1);
  EXPECT_FALSE(runner->is_staged());
}

TEST_F(StagedStepTest, T_RS_3_another_walk_drops_it) {
  context->batch.walk = WalkId{4};
  EXPECT_FALSE(is_taken());
}
TEST_F(StagedStepTest, T_RS_3_other_requests_drop_it) {
  std::swap(handles[0], handles[1]);
  EXPECT_FALSE(is_taken());
}
TEST_F(StagedStepTest, T_RS_3_another_generation_of_a_row_drops_it) {
  handles[1].generation = 2;
  EXPECT_FALSE(is_taken());
}
TEST_F(StagedStepTest, T_RS_3_another_slot_drops_it) {
  context->slot = 1;
  EXPECT_FALSE(is_taken());
}
TEST_F(StagedStepTest, T_RS_3_another_capture_key_drops_it) {
  step.cg_key_info = CgKey::interned(9);
  EXPECT_FALSE(is_taken());
}
TEST_F(StagedStepTest, T_RS_3_other_segments_drop_it) {
  step.segments[1].span = 2;
  EXPECT_FALSE(is_taken());
}
TEST_F(StagedStepTest, T_RS_3_segments_of_a_resource_drop_it) {
  step.declare<AttentionStep>(ResourceKey{0}).segments = {{{0, 1}, LabelId::kMain, 1}};
  EXPECT_FALSE(is_taken());
}
TEST_F(StagedStepTest, T_RS_3_what_a_resource_is_told_drops_it) {
  step.declare<AttentionStep>(ResourceKey{0}).causal = false;
  EXPECT_FALSE(is_taken());
}
TEST_F(StagedStepTest, T_RS_3_what_does_not_preplan_may_differ) {
  step.declare<AttentionStep>(ResourceKey{1}).causal = false;
  EXPECT_TRUE(is_taken());
}

TEST_F(StagedStepTest, B_07_another_step_first_drops_it_and_the_staged_one_is_made_anew) {
  step.segments[0].span = 3;
  std::ignore = runner->admit(step, *context);
  runner->plan(step, *context);
  declare_all();
  calls.clear();
  std::ignore = runner->admit(step, *context);
  runner->plan(step, *context);
  EXPECT_THAT(calls, ElementsAre("admit cache", "admit sampler", "plan cache", "plan sampler"));
}

TEST_F(StagedStepTest, ARefusedStageLeavesNothing) {
  runner->clear_preplan();
  calls.clear();
  resources.get<RecordingResource>("cache").refuses = true;
  EXPECT_FALSE(runner->pre_admit(step, *context).ok());
  EXPECT_FALSE(runner->is_staged());
  EXPECT_THAT(calls, ElementsAre("begin cache", "admit cache", "clear sampler", "clear cache"));
  EXPECT_THROW(runner->pre_plan(step, *context), CheckError);
}

TEST_F(StagedStepTest, OnlyARequestOfTheStagedStepDropsIt) {
  runner->clear_preplan_of({2, 1});
  EXPECT_TRUE(runner->is_staged());
  runner->clear_preplan_of({1, 1});
  EXPECT_FALSE(runner->is_staged());
}

/// Two nodes with a cache each: what one of them keeps on the host does not hold a request back at the other.
TEST_F(StepRunnerTest, T_RS_5_a_node_asks_its_own_resources_alone) {
  NodeResources other;
  other.add("kv", std::make_unique<RecordingResource>(ResourceKey{0}, "kv",
                                                      std::vector<ResourceKey>{}, calls));
  add("kv", {}).offloaded = true;
  EXPECT_FALSE(StepRunner(resources).is_resident({0, 1}));
  EXPECT_TRUE(StepRunner(other).is_resident({0, 1}));
}

TEST_F(StepRunnerTest, B_21_a_node_without_resources_is_always_ready) {
  NodeResources none;
  add("kv", {}).offloaded = true;
  EXPECT_TRUE(StepRunner(none).is_resident({0, 1}));
}

TEST_F(StepRunnerTest, AReloadThatFailsHalfWayIsTakenBack) {
  RecordingResource& first = add("a", {});
  RecordingResource& second = add("b", {});
  first.offloaded = second.offloaded = second.reload_fails = true;
  const StepRunner runner(resources);
  EXPECT_FALSE(runner.reload({0, 1}, stream->ref(), 0));
  EXPECT_TRUE(first.offloaded);
  EXPECT_THAT(calls, ElementsAre("reload a", "reload b", "offload a"));
  calls.clear();
  second.fits = false;
  EXPECT_FALSE(runner.reload({0, 1}, stream->ref(), 0));
  EXPECT_THAT(calls, ::testing::IsEmpty());
}

/// Decode lanes through a cache with prefixes, positions and attention, staged and launched, page after page.
class SteadyRunnerTest : public testing::KvTest {};

TEST_F(SteadyRunnerTest, T_RS_7_a_steady_step_allocates_nothing) {
  KvCacheConfig config = config_of(64);
  config.enable_prefix_cache = true;
  NodeResources resources;
  resources.add("kv", std::make_unique<KvCache>(kKey, *device, config));
  resources.add("positions", std::make_unique<Positions>(ResourceKey{1}, 4, 1, kKey));
  resources.add("attention", std::make_unique<AttentionPlanner>(ResourceKey{2}, 16, kKey));
  StepRunner runner(resources);
  auto& cache = resources.get<KvCache>("kv");
  std::vector<RequestHandle> handles;
  for (std::int32_t row = 0; row < 4; ++row) {
    for (std::size_t index = 0; index < resources.size(); ++index) {
      resources[index].ingest_request(info_of(row));
    }
    handles.push_back({row, 1});
  }
  const std::vector<std::int32_t> tokens = numbers(256);
  const auto run_step = [&](std::int32_t length, bool ahead) {
    context->reset();
    staging->reset();
    context->epoch = ++last_epoch;
    context->batch.handles = handles;
    context->num_tokens = 4;
    step.reset();
    for (const RequestHandle handle : handles) {
      step.segments.push_back({handle, LabelId::kMain, 1});
    }
    step.declare<KvStep>(kKey);
    step.declare<PositionStep>(ResourceKey{1});
    step.declare<AttentionStep>(ResourceKey{2});
    bool ok = true;
    if (ahead) {
      ok = runner.pre_admit(step, *context).ok();
      runner.pre_plan(step, *context);
    }
    ok = ok && runner.admit(step, *context).ok();
    runner.plan(step, *context);
    runner.commit(step, *context);
    for (const RequestHandle handle : handles) {
      cache.extend_prefix(handle, {tokens.data(), static_cast<std::size_t>(length)});
    }
    cache.collect(last_epoch - 1);
    return ok;
  };
  for (std::int32_t length = 1; length <= 20; ++length) {
    ASSERT_TRUE(run_step(length, true));
  }
  const std::uint64_t before = testing::num_allocations();
  int num_ok = 0;
  for (std::int32_t length = 21; length <= 220; ++length) {
    num_ok += run_step(length, length % 2 == 0) ? 1 : 0;
  }
  EXPECT_EQ(testing::num_allocations() - before, 0U);
  EXPECT_EQ(num_ok, 200);
  EXPECT_EQ(cache.prefix_index()->num_pages(), 13) << "the first request's; the others agree";
}

TEST(NodeResourcesTest, AMissingResourceIsNamedTogetherWithWhatThereIs) {
  std::vector<std::string> calls;
  NodeResources resources;
  resources.add("kv", std::make_unique<RecordingResource>(ResourceKey{0}, "kv",
                                                          std::vector<ResourceKey>{}, calls));
  try {
    std::ignore = resources.get<RecordingResource>("sampler");
    FAIL() << "found a sampler";
  } catch (const CheckError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("'sampler'"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("kv"));
  }
}

}  // namespace
}  // namespace rigel
