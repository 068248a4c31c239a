#include "engine/resources/attention_planner.h"

#include "tests/engine/kv_test.h"

#include <gmock/gmock.h>

namespace rigel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::kAside;

class AttentionPlannerTest : public testing::KvTest {
 protected:
  static constexpr ResourceKey kAttention{1};

  const AttentionPlan& plan_attention(AttentionPlanner& planner) {
    planner.plan(step, *context);
    return context->plan<AttentionPlan>(kAttention);
  }
  const AttentionPlan& plan_of(std::vector<Segment> segments) {
    staging->reset();
    context->reset();
    step.reset();
    step.segments = std::move(segments);
    AttentionPlanner planner(kAttention, 16);
    return plan_attention(planner);
  }
};

TEST_F(AttentionPlannerTest, DecodeLanesAreSplitFromTilesOfOneRow) {
  const AttentionPlan& plan = plan_of({{{0, 1}, LabelId::kMain, 1},
                                       {{1, 1}, LabelId::kMain, 1},
                                       {{2, 1}, LabelId::kMain, 18},
                                       {{3, 1}, LabelId::kMain, 1}});
  EXPECT_EQ(plan.num_decode_tokens, 2);
  EXPECT_THAT(staged<std::int32_t>(plan.prefill_tiles), ElementsAre(2, 16, 18, 2, 20, 1));
  EXPECT_TRUE(plan.causal);
}

TEST_F(AttentionPlannerTest, ABatchOfDecodeLanesHasNoTiles) {
  const AttentionPlan& plan = plan_of({{{0, 1}, LabelId::kMain, 1}, {{1, 1}, LabelId::kMain, 1}});
  EXPECT_EQ(plan.num_decode_tokens, 2);
  EXPECT_THAT(staged<std::int32_t>(plan.prefill_tiles), IsEmpty());
}

TEST_F(AttentionPlannerTest, EachLabelHasItsPart) {
  const AttentionPlan& plan = plan_of({{{0, 1}, LabelId::kMain, 1},
                                       {{1, 1}, LabelId::kMain, 20},
                                       {{0, 1}, kAside, 1},
                                       {{1, 1}, kAside, 3}});
  ASSERT_EQ(plan.num_labels, 2);
  EXPECT_EQ(plan.labels[0].num_decode_tokens, 1);
  EXPECT_THAT(staged<std::int32_t>(plan.labels[0].prefill_tiles), ElementsAre(1, 16, 17, 4));
  EXPECT_EQ(plan.labels[1].label, kAside);
  EXPECT_EQ(plan.labels[1].first_token, 21);
  EXPECT_EQ(plan.labels[1].num_decode_tokens, 0);
  EXPECT_THAT(staged<std::int32_t>(plan.labels[1].prefill_tiles), ElementsAre(21, 1, 22, 3));

  const AttentionPlan& decode =
      plan_of({{{0, 1}, LabelId::kMain, 1}, {{0, 1}, kAside, 1}, {{1, 1}, kAside, 1}});
  EXPECT_EQ(decode.labels[1].first_token, 1);
  EXPECT_EQ(decode.labels[1].num_decode_tokens, 2);
}

TEST_F(AttentionPlannerTest, MixedLabelsHaveNoParts) {
  EXPECT_EQ(plan_of({{{0, 1}, LabelId::kMain, 1}, {{0, 1}, kAside, 1}, {{1, 1}, LabelId::kMain, 1}})
                .num_labels,
            0);
}

TEST_F(AttentionPlannerTest, WithoutCausalityATokenSeesItsWholeSegment) {
  auto cache = make_cache(16);
  const RequestHandle first = open(*cache, 0);
  const RequestHandle second = open(*cache, 1);
  ASSERT_TRUE(run(*cache, {{first, LabelId::kMain, 6}}));
  declare({{first, LabelId::kMain, 3}, {{-1, 0}, LabelId::kMain, 1}, {second, LabelId::kMain, 2}});
  step.declare<AttentionStep>(kAttention).causal = false;
  ASSERT_TRUE(admit(*cache).ok());
  plan(*cache);
  AttentionPlanner planner(kAttention, 16, kKey);
  const AttentionPlan& plan = plan_attention(planner);
  EXPECT_FALSE(plan.causal);
  EXPECT_THAT(staged<std::int32_t>(plan.last_keys), ElementsAre(8, 8, 8, -1, 1, 1));
  AttentionPlanner alone(kAttention, 16);
  EXPECT_THROW(plan_attention(alone), CheckError);
}

TEST_F(AttentionPlannerTest, T_CG_1_a_packed_capture_has_places_for_any_lanes) {
  const SlotLease lease{.slot = 0,
                        .bucket = {.num_lanes = 4, .num_tokens = 40, .key = {}, .is_packed = true}};
  const std::vector<RequestHandle> lanes{{5, 1}, {2, 1}, {3, 1}, {-4, 0}};
  staging->reset();
  context->reset();
  context->batch.handles = lanes;
  context->batch.slot_lease = &lease;
  context->num_tokens = 40;
  step.reset();
  step.segments = {{lanes[0], LabelId::kMain, 1},
                   {lanes[1], LabelId::kMain, 18},
                   {lanes[2], LabelId::kMain, 1},
                   {lanes[3], LabelId::kMain, 0},
                   {{-5, 0}, LabelId::kMain, 20}};
  AttentionPlanner planner(kAttention, 16);
  const AttentionPlan& plan = plan_attention(planner);
  EXPECT_EQ(plan.num_decode_tokens, 4);
  EXPECT_THAT(staged<std::int32_t>(plan.decode_rows), ElementsAre(5, -1, -1, -1));
  EXPECT_THAT(staged<std::int32_t>(plan.prefill_tiles),
              ElementsAre(1, 16, 17, 2, 19, 1, 0, 0, 0, 0, 0, 0));
  context->batch = {};
}

}  // namespace
}  // namespace rigel
