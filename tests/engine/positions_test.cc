#include "engine/resources/positions.h"

#include "engine/resources/kv_cache.h"
#include "tests/engine/kv_test.h"

#include <gmock/gmock.h>

namespace rigel {
namespace {

using ::testing::ElementsAre;
using testing::kAside;

class PositionsTest : public testing::KvTest {
 protected:
  static constexpr ResourceKey kPositions{1};

  static void ingest(Resource& resource, std::int32_t row) {
    resource.ingest_request(info_of(row));
  }
  PositionStep& declare_positions(std::vector<Segment> segments) {
    step.reset();
    step.segments = std::move(segments);
    context->num_tokens = 0;
    for (const Segment& segment : step.segments) {
      context->num_tokens += segment.span;
    }
    return step.declare<PositionStep>(kPositions);
  }
  std::vector<std::int32_t> planned(Positions& positions) {
    staging->reset();
    positions.plan(step, *context);
    return staged<std::int32_t>(context->plan<PositionPlan>(kPositions).positions);
  }
};

TEST_F(PositionsTest, PositionsContinueAcrossChunksAndSkipPadding) {
  Positions positions(kPositions, 4);
  const RequestHandle handle{2, 1};
  ingest(positions, 2);
  declare_positions({{handle, LabelId::kMain, 3}});
  EXPECT_THAT(planned(positions), ElementsAre(0, 1, 2));
  positions.commit(step, *context);
  declare_positions({{handle, LabelId::kMain, 2}, {RequestHandle{}, LabelId::kMain, 1}});
  EXPECT_THAT(planned(positions), ElementsAre(3, 4, -1));
  EXPECT_THAT(staged<std::int32_t>(context->plan<PositionPlan>(kPositions).token_rows),
              ElementsAre(2, 2, -1));
  positions.commit(step, *context);
  declare_positions({{handle, LabelId::kMain, 1}});
  EXPECT_THAT(planned(positions), ElementsAre(5)) << "decode goes on behind a chunked prefill";
  positions.restart_request(handle, 0);
  EXPECT_EQ(positions.next(handle), 0);
}

TEST_F(PositionsTest, B_20_a_second_ingest_keeps_the_counter_and_a_new_owner_starts_over) {
  Positions positions(kPositions, 4);
  const RequestHandle handle{1, 1};
  ingest(positions, 1);
  declare_positions({{handle, LabelId::kMain, 7}});
  positions.commit(step, *context);
  ingest(positions, 1);
  EXPECT_EQ(positions.next(handle), 7);
  positions.ingest_request(info_of(1, 2));
  EXPECT_EQ(positions.next({1, 2}), 0);
}

TEST_F(PositionsTest, TheTokensOfABlockShareOnePosition) {
  Positions positions(kPositions, 4);
  const RequestHandle handle{0, 1};
  ingest(positions, 0);
  declare_positions({{handle, LabelId::kMain, 2}});
  positions.commit(step, *context);
  declare_positions({{handle, LabelId::kMain, 3}}).scheme = PositionStep::Scheme::kBlock;
  EXPECT_THAT(planned(positions), ElementsAre(2, 2, 2));
  positions.commit(step, *context);
  EXPECT_EQ(positions.next(handle), 3);
}

TEST_F(PositionsTest, GivenPositionsAndAdvancesAreTaken) {
  Positions positions(kPositions, 4);
  const RequestHandle handle{0, 1};
  ingest(positions, 0);
  PositionStep& own = declare_positions({{handle, LabelId::kMain, 3}});
  own.pos_ids = {4, 4, 9};
  own.advance = {10};
  EXPECT_THAT(planned(positions), ElementsAre(4, 4, 9));
  positions.commit(step, *context);
  EXPECT_EQ(positions.next(handle), 10);
  declare_positions({{handle, LabelId::kMain, 2}}).pos_ids = {1};
  EXPECT_THROW(std::ignore = planned(positions), CheckError);
  declare_positions({{handle, LabelId::kMain, 2}}).advance = {1, 2};
  EXPECT_THROW(positions.commit(step, *context), CheckError);
}

TEST_F(PositionsTest, LabelsCountForThemselvesAndCanBeCutBack) {
  Positions positions(kPositions, 4, 2);
  const RequestHandle handle{3, 1};
  ingest(positions, 3);
  declare_positions({{handle, LabelId::kMain, 5}, {handle, kAside, 2}});
  EXPECT_THAT(planned(positions), ElementsAre(0, 1, 2, 3, 4, 0, 1));
  positions.commit(step, *context);
  EXPECT_EQ(positions.next(handle), 5);
  EXPECT_EQ(positions.next(handle, kAside), 2);
  positions.truncate_to(handle, LabelId::kMain, 4);
  EXPECT_EQ(positions.next(handle), 4);
  EXPECT_THROW(positions.truncate_to(handle, kAside, 3), CheckError);
}

/// A fork before one step and one after another, then both labels go on by themselves.
TEST_F(PositionsTest, ForksOfTheCacheAreMirroredAndDivergeAfterwards) {
  KvCacheConfig config = config_of(16);
  config.num_labels = 2;
  auto cache = make_cache(config);
  Positions positions(kPositions, 4, 2, kKey);
  const RequestHandle handle = open(*cache, 0);
  ingest(positions, 0);
  const auto run_both = [&](std::vector<Segment> segments, std::vector<Fork> pre,
                            std::vector<Fork> post) {
    declare_positions(std::move(segments));
    auto& kv = step.declare<KvStep>(kKey);
    kv.pre_forks = std::move(pre);
    kv.post_forks = std::move(post);
    ASSERT_TRUE(admit(*cache).ok());
    plan(*cache);
    positions.plan(step, *context);
    cache->commit(step, *context);
    positions.commit(step, *context);
    for (const LabelId label : {LabelId::kMain, kAside}) {
      ASSERT_EQ(positions.next(handle, label), cache->stored_length(handle, label));
    }
  };
  run_both({{handle, LabelId::kMain, 5}}, {}, {});
  run_both({{handle, kAside, 2}}, {{LabelId::kMain, kAside}}, {});
  EXPECT_EQ(positions.next(handle, kAside), 7);
  EXPECT_EQ(positions.next(handle), 5);
  run_both({{handle, LabelId::kMain, 3}}, {}, {{LabelId::kMain, kAside}});
  EXPECT_EQ(positions.next(handle, kAside), 8);
  run_both({{handle, kAside, 1}}, {}, {});
  EXPECT_EQ(positions.next(handle), 8);

  // A staged step is taken back whole.
  declare_positions({{handle, LabelId::kMain, 1}});
  step.declare<KvStep>(kKey).pre_forks = {{kAside, LabelId::kMain}};
  cache->begin_preplan();
  positions.begin_preplan();
  ASSERT_TRUE(admit(*cache).ok());
  plan(*cache);
  positions.plan(step, *context);
  EXPECT_EQ(positions.next(handle), 9);
  positions.clear_preplan();
  cache->clear_preplan();
  EXPECT_EQ(positions.next(handle), 8);
}

}  // namespace
}  // namespace rigel
