// What a step's rows bring on the device moves in one launch, from wherever it lies.

#include "engine/step_context.h"

#include "tests/engine/device_tensors.h"

#include <gmock/gmock.h>

#include <span>
#include <vector>

namespace rigel {
namespace {

using ::testing::ElementsAre;
using testing::host_ids;

constexpr SignalId kBrought{3};
constexpr SignalId kBroughtColumns{4};

class StepContextTest : public testing::DeviceTensorTest {
 protected:
  void SetUp() override {
    DeviceTensorTest::SetUp();
    if (!IsSkipped()) {
      staging = std::make_unique<StepStaging>(*device, 4096);
    }
  }
  /// A step that brings `parts` of i32 behind each other, from its staging to its splice; gives the layout of its columns.
  std::uint64_t run(StepContext& context, TensorInputs& inputs, const std::vector<Tensor>& parts) {
    context.reset();
    staging->reset();
    context.begin_columns(*staging);
    context.tensor_inputs = &inputs;
    context.bring(kBrought, parts);
    context.stage_splices();
    staging->upload(stream());
    context.enqueue_splices();
    return staging->layout();
  }
  [[nodiscard]] std::vector<std::int32_t> values(const ConstDeviceView& view) const {
    PinnedBuffer host(*device, view.num_bytes());
    const HostView target = host.view(Dtype::kI32, view.shape());
    copy(stream(), target, view);
    stream().synchronize();
    const auto span = target.span<std::int32_t>();
    return {span.begin(), span.end()};
  }

  std::unique_ptr<StepStaging> staging;
};

TEST_F(StepContextTest, AnEagerStepMovesWhatLiesOnTheDevice) {
  StepContext context(stream());
  GatheredInputs inputs(*device);
  run(context, inputs, {device_ids({1, 2}), host_ids({3}), device_ids({4, 5, 6})});
  EXPECT_THAT(values(context.staged(kBrought)), ElementsAre(1, 2, 3, 4, 5, 6));

  // Along the second dimension every place before it is a row of its own.
  context.reset();
  staging->reset();
  context.begin_columns(*staging);
  const std::vector<Tensor> columns = {device_ids({1, 2}).reshape({2, 1}),
                                       device_ids({10, 11, 20, 21}).reshape({2, 2})};
  context.bring(kBroughtColumns, columns, /*dim=*/1);
  context.stage_splices();
  staging->upload(stream());
  context.enqueue_splices();
  EXPECT_THAT(values(context.staged(kBroughtColumns)), ElementsAre(1, 10, 11, 2, 20, 21));
}

TEST_F(StepContextTest, AStepThatBringsNothingOnTheDeviceLaunchesNothing) {
  StepContext context(stream());
  GatheredInputs inputs(*device);
  const std::uint64_t bare = [&] {
    staging->reset();
    context.begin_columns(*staging);
    return staging->layout();
  }();
  EXPECT_EQ(run(context, inputs, {host_ids({1}), host_ids({2})}), bare);
  EXPECT_THAT(values(context.staged(kBrought)), ElementsAre(1, 2));
}

TEST_F(StepContextTest,
       T_CG_2_a_captured_splice_has_its_columns_where_they_were_whatever_is_brought) {
  StepContext context(stream());
  StaticInputs inputs(*device, /*num_slots=*/2);
  const SlotLease lease;
  context.batch.slot_lease = &lease;
  inputs.begin_capture(0);
  const std::uint64_t captured =
      run(context, inputs, {host_ids({0, 0}), host_ids({0, 0}), host_ids({0, 0})});

  const std::vector<std::vector<Tensor>> steps = {
      {device_ids({1, 2}), device_ids({3, 4}), device_ids({5, 6})},
      {device_ids({1, 2}), host_ids({3, 4}), device_ids({5, 6})},
      {device_ids({1, 2, 3, 4, 5, 6})},
      {device_ids({1}), device_ids({2}), device_ids({3}), device_ids({4}), device_ids({5, 6})}};
  for (std::int32_t step = 0; step < 4; ++step) {
    inputs.begin_replay(0, step % 2);
    EXPECT_EQ(run(context, inputs, steps[static_cast<std::size_t>(step)]), captured);
    EXPECT_THAT(values(context.staged(kBrought)), ElementsAre(1, 2, 3, 4, 5, 6)) << "step " << step;
    const Tensor nothing = host_ids({-1, -1, -1, -1, -1, -1});
    inputs.begin_replay(0, step % 2);
    run(context, inputs, {nothing});
    stream().synchronize();
  }
}

}  // namespace
}  // namespace rigel
