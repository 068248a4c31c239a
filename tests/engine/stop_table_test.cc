#include "engine/resources/stop_table.h"

#include "tests/engine/engine_test.h"

#include <gmock/gmock.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

namespace rigel {
namespace {

using kernels::StopRow;
using ::testing::ElementsAre;

constexpr std::int32_t kTableRows = 4;
constexpr ResourceKey kSamplerKey{0};
constexpr ResourceKey kStopsKey{1};
constexpr std::array<std::int32_t, 2> kEndIds{7, 2};

class StopTableTest : public testing::EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    if (!IsSkipped()) {
      table = std::make_unique<StopTable>(kStopsKey, *device, kTableRows, kEndIds, kSamplerKey);
    }
  }
  static RequestInfo request(std::int32_t row, std::vector<std::int32_t> stop_ids = {},
                             std::uint32_t generation = 1) {
    RequestInfo info = info_of(row, generation);
    info.num_prompt_tokens = 3;
    info.max_tokens = 20;
    info.max_length = 50;
    info.sampling.min_tokens = 1;
    info.sampling.stop_token_ids = std::move(stop_ids);
    return info;
  }
  /// One eager step over the lanes of these rows; it fails in its forward where it does not commit.
  void run(const std::vector<RequestHandle>& lanes, bool commits = true) {
    context->reset();
    staging->reset();
    context->batch.handles = lanes;
    context->set_plan(kSamplerKey, SamplerPlan{});
    step.reset();
    step.declare<std::monostate>(kStopsKey);
    table->plan(step, *context);
    staging->upload(stream->ref());
    table->enqueue_new_rows(*context);
    stream->synchronize();
    if (commits) {
      table->commit(step, *context);
    }
  }
  [[nodiscard]] StopRow row(std::int32_t index) const {
    const DeviceView view = table->test(*context, {}).stop_rows;
    PinnedBuffer host(*device, view.num_bytes());
    const HostView target = host.view(view.dtype(), view.shape());
    copy(stream->ref(), target, ConstDeviceView(view));
    stream->synchronize();
    StopRow row{};
    std::memcpy(&row, target.select(0, index).raw(), sizeof row);
    return row;
  }

  std::unique_ptr<StopTable> table;
  SubmoduleStep step;
};

TEST_F(StopTableTest, a_rows_limits_and_ids_are_on_the_device_with_the_first_step) {
  table->ingest_request(request(2, {2, 5, 7, 9}));
  table->ingest_request(request(0, {5, 7}));
  run({{2, 1}});
  const StopRow two = row(2);
  EXPECT_EQ(two.generation, 1u);
  EXPECT_EQ(two.options, 0u) << "its ids hold all end tokens of the model";
  EXPECT_EQ(two.max_tokens, 20);
  EXPECT_EQ(two.max_length, 50);
  EXPECT_EQ(two.num_prompt_tokens, 3);
  EXPECT_EQ(two.min_tokens, 1);
  EXPECT_EQ(two.num_generated, 0);
  EXPECT_THAT(std::vector(two.stop_ids, two.stop_ids + 3), ElementsAre(5, 9, -1));
  const StopRow zero = row(0);
  EXPECT_EQ(zero.options, kernels::kIgnoreEos) << "2 does not end it";
  EXPECT_THAT(std::vector(zero.stop_ids, zero.stop_ids + 3), ElementsAre(5, 7, -1));
}

TEST_F(StopTableTest, ids_that_do_not_fit_are_left_to_the_host) {
  table->ingest_request(request(1, {2, 7, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}));
  run({{1, 1}});
  EXPECT_EQ(row(1).options, kernels::kListContinues);
}

TEST_F(StopTableTest, B_20_a_second_ingest_does_not_start_the_row_again) {
  const RequestInfo info = request(1);
  table->ingest_request(info);
  run({info.handle});
  table->ingest_request(info);
  run({info.handle});
  EXPECT_FALSE(context->plan<StopPlan>(kStopsKey).rows.defined());
}

TEST_F(StopTableTest, B_31_a_step_that_fails_leaves_its_rows_to_the_next) {
  table->ingest_request(request(1));
  table->ingest_request(request(3, {5}));
  run({{1, 1}}, /*commits=*/false);
  table->remove_request({1, 1}, 0);
  run({{3, 1}});
  EXPECT_EQ(context->plan<StopPlan>(kStopsKey).rows.dim(0), 1);
  EXPECT_EQ(row(3).stop_ids[0], 5);
}

TEST_F(StopTableTest, C_7_a_row_belongs_to_its_latest_owner) {
  table->ingest_request(request(1, {5}));
  table->remove_request({1, 1}, 0);  // before any step
  table->ingest_request(request(1, {6}, 2));
  run({{1, 2}});
  EXPECT_EQ(row(1).generation, 2u);
  EXPECT_EQ(row(1).stop_ids[0], 6);
}

TEST_F(StopTableTest, T_CG_1_a_captured_step_waits_until_its_rows_are_known) {
  table->ingest_request(request(1));
  table->ingest_request(request(2));
  const std::vector<RequestHandle> lanes{{1, 1}, {-1, 0}};
  context->batch.handles = lanes;
  EXPECT_FALSE(table->fits_capture(step, *context));
  run({{1, 1}});
  table->ingest_request(request(3));
  context->batch.handles = lanes;
  EXPECT_TRUE(table->fits_capture(step, *context)) << "nobody of this step is new";

  const SlotLease lease{};
  context->batch.slot_lease = &lease;
  table->plan(step, *context);
  EXPECT_FALSE(context->plan<StopPlan>(kStopsKey).rows.defined())
      << "its columns have fixed places";
  table->commit(step, *context);
  context->batch.slot_lease = nullptr;
  run({{3, 1}});
  EXPECT_EQ(row(3).generation, 1u) << "a captured step in between takes nothing away";
}

TEST_F(StopTableTest, T_CG_1_a_packed_step_brings_the_new_rows_of_its_own_lanes) {
  table->ingest_request(request(1, {5}));
  table->ingest_request(request(3, {6}));
  const std::vector<RequestHandle> lanes{{2, 1}, {3, 1}, {-1, 0}};
  const SlotLease lease{.slot = 0,
                        .bucket = {.num_lanes = 3, .num_tokens = 8, .key = {}, .is_packed = true}};
  staging->reset();
  context->set_plan(kSamplerKey, SamplerPlan{});
  context->batch.handles = lanes;
  context->batch.slot_lease = &lease;
  EXPECT_TRUE(table->fits_capture(step, *context));
  table->plan(step, *context);
  EXPECT_EQ(context->plan<StopPlan>(kStopsKey).rows.dim(0), 3) << "a place for every lane";
  staging->upload(stream->ref());
  table->enqueue_new_rows(*context);
  stream->synchronize();
  table->commit(step, *context);
  EXPECT_EQ(row(3).stop_ids[0], 6);
  context->batch.slot_lease = nullptr;
  run({{1, 1}});
  EXPECT_EQ(context->plan<StopPlan>(kStopsKey).rows.dim(0), 1) << "row 3 is known, row 1 was not";
  EXPECT_EQ(row(1).stop_ids[0], 5);
}

}  // namespace
}  // namespace rigel
