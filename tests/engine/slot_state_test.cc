#include "engine/resources/slot_state.h"

#include "tensor/copy.h"
#include "tests/engine/engine_test.h"
#include "tests/engine/kv_test.h"

#include <gmock/gmock.h>

namespace rigel {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::kAside;

class SlotStateTest : public testing::EngineTest {
 protected:
  static constexpr ResourceKey kKey{0};

  void SetUp() override {
    EngineTest::SetUp();
    if (device != nullptr) {
      state = std::make_unique<SlotState>(
          kKey, *device,
          SlotStateConfig{.num_rows = 3, .num_labels = 2, .dtype = Dtype::kI32, .shape = {2, 3}});
      fill_bytes(stream->ref(), state->pool(), 0x11);  // what earlier owners left
    }
  }
  std::vector<std::int32_t> plan(std::vector<Segment> segments, std::vector<Fork> pre = {}) {
    step.reset();
    step.segments = std::move(segments);
    step.declare<SlotStateStep>(kKey).pre_forks = std::move(pre);
    staging->reset();
    state->plan(step, *context);
    return staged<std::int32_t>(context->plan<SlotStatePlan>(kKey).slots);
  }
  std::vector<std::int32_t> values(std::int32_t slot) {
    return staged<std::int32_t>(state->pool().slice(0, slot, 1));
  }
  void set(std::int32_t slot, std::uint8_t value) {
    fill_bytes(stream->ref(), state->pool().slice(0, slot, 1), value);
  }

  SubmoduleStep step;
  std::unique_ptr<SlotState> state;
};

TEST_F(SlotStateTest, ANewRequestBeginsWithZeroesOnce) {
  state->ingest_request(info_of(1));
  EXPECT_THAT(plan({{{1, 1}, LabelId::kMain, 1}}), ElementsAre(1));
  EXPECT_THAT(values(1), Each(0));
  EXPECT_THAT(values(0), Each(0x11111111)) << "other rows are left alone";
  set(1, 0x22);
  plan({{{1, 1}, LabelId::kMain, 1}});
  EXPECT_THAT(values(1), Each(0x22222222));
}

TEST_F(SlotStateTest, ASuccessorAndARestartBeginAnewAndASecondIngestDoesNot) {
  state->ingest_request(info_of(2));
  plan({{{2, 1}, LabelId::kMain, 1}});
  set(2, 0x22);
  state->ingest_request(info_of(2));
  plan({{{2, 1}, LabelId::kMain, 1}});
  EXPECT_THAT(values(2), Each(0x22222222));
  state->restart_request({2, 1}, 0);
  plan({{{2, 1}, LabelId::kMain, 1}});
  EXPECT_THAT(values(2), Each(0));
  set(2, 0x22);
  state->ingest_request(info_of(2, 2));
  plan({{{2, 2}, LabelId::kMain, 1}});
  EXPECT_THAT(values(2), Each(0));
  EXPECT_THROW(plan({{{2, 1}, LabelId::kMain, 1}}), CheckError);
}

TEST_F(SlotStateTest, PaddingHasTheScratchState) {
  state->ingest_request(info_of(0));
  EXPECT_THAT(plan({{{-1, 0}, LabelId::kMain, 1}, {{0, 1}, kAside, 1}, {{-2, 0}, kAside, 1}}),
              ElementsAre(6, 3, 6));
  EXPECT_EQ(state->pool().dim(0), 7);
}

TEST_F(SlotStateTest, ForksCopyBeforeTheStepAndAfterIt) {
  state->ingest_request(info_of(0));
  plan({{{0, 1}, LabelId::kMain, 1}});
  set(0, 0x22);
  plan({{{0, 1}, kAside, 1}}, {{LabelId::kMain, kAside}});
  EXPECT_THAT(values(3), Each(0x22222222));
  set(3, 0x33);  // the step's forward
  step.declare<SlotStateStep>(kKey).post_forks = {{kAside, LabelId::kMain}};
  state->commit(step, *context);
  EXPECT_THAT(values(0), Each(0x33333333));
}

TEST_F(SlotStateTest, AForkOfANewStateIsZero) {
  state->ingest_request(info_of(1));
  plan({{{1, 1}, kAside, 1}}, {{LabelId::kMain, kAside}});
  EXPECT_THAT(values(4), Each(0));
}

}  // namespace
}  // namespace rigel
