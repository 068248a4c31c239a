// Graphs whose tail repeats while a condition on the device holds.

#include "tensor/event.h"
#include "tensor/graph.h"
#include "tests/tensor/device_modes.h"
#include "tests/tensor/kernels_for_tests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rigel {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class GraphLoops : public testing::EveryMode {};
INSTANTIATE_TEST_SUITE_P(, GraphLoops, testing::every_mode(), testing::name_of_mode);

TEST_P(GraphLoops, RepeatWhatIsBehindTheirBeginUntilAKernelEndsThem) {
  const Stream stream(device());
  const PinnedBuffer in = counting(2);
  const PinnedBuffer out = counting(2);
  const DeviceBuffer x(device(), Dtype::kI32, {2});
  GraphCapture capture(stream);
  copy(stream, view(x), view(in));
  const LoopCondition condition = capture.begin_loop();
  testing::scale_add(stream, view(x), 2, 1);
  testing::repeat_until(stream, view(x), 20, condition);
  copy(stream, view(out), view(x));
  GraphExec exec(capture.end());
  EXPECT_EQ(exec.num_nodes(), 4);
  for (const auto& [first, expected] : {std::pair(1, 31), {30, 61}, {0, 31}, {9, 39}}) {
    ints(in)[0] = first;  // 30: one turn, whatever the condition was before
    exec.launch(stream);
    stream.synchronize();
    EXPECT_EQ(ints(out)[0], expected) << "from " << first;
  }
}

TEST_P(GraphLoops, LaunchesFollowEachOther) {
  const Stream stream(device());
  const PinnedBuffer out = counting(1);
  const DeviceBuffer x(device(), Dtype::kI32, {1});
  const DeviceBuffer total(device(), Dtype::kI32, {1});
  fill_bytes(stream, view(total), 0);
  GraphCapture capture(stream);
  fill_bytes(stream, view(x), 0);
  const LoopCondition condition = capture.begin_loop();
  testing::scale_add(stream, view(x), 1, 1);
  testing::add(stream, view(total), view(total), view(x));
  testing::repeat_until(stream, view(x), 4, condition);
  GraphExec exec(capture.end());
  for (int launch = 0; launch < 3; ++launch) {
    exec.launch(stream);
  }
  copy(stream, view(out), view(total));
  stream.synchronize();
  EXPECT_EQ(ints(out)[0], 3 * (1 + 2 + 3 + 4));
}

TEST_P(GraphLoops, TakeForksIntoEachTurn) {
  const Stream stream(device());
  const Stream branch(device());
  const Event fork(device());
  const Event join(device());
  const PinnedBuffer out = counting(4);
  const DeviceBuffer x(device(), Dtype::kI32, {4});
  const DeviceBuffer y(device(), Dtype::kI32, {4});
  GraphCapture capture(stream);
  fill_bytes(stream, view(x), 0);
  const LoopCondition condition = capture.begin_loop();
  fork.record(stream);
  branch.wait(fork);
  fill_bytes(branch, view(y), 0);
  testing::scale_add(branch, view(y), 1, 2);
  testing::scale_add(stream, view(x), 1, 1);
  join.record(branch);
  stream.wait(join);
  testing::add(stream, view(x), view(x), view(y));
  testing::repeat_until(stream, view(x), 9, condition);
  GraphExec exec(capture.end());
  exec.launch(stream);
  copy(stream, view(out), view(x));
  stream.synchronize();
  EXPECT_THAT(ints(out), Each(9));
}

TEST_P(GraphLoops, AFailedTurnEndsThem) {
  if (device().is_cuda()) {
    GTEST_SKIP() << "CUDA does not recover from a failed kernel";
  }
  const Stream stream(device());
  const DeviceBuffer x(device(), Dtype::kI32, {1});
  GraphCapture capture(stream);
  fill_bytes(stream, view(x), 0);
  std::ignore = capture.begin_loop();  // nobody would end it
  testing::diverge(stream);
  GraphExec exec(capture.end());
  EXPECT_THROW(
      {
        exec.launch(stream);
        stream.synchronize();
      },
      DeviceError);
}

TEST_P(GraphLoops, OfALostCaptureAreLost) {
  const Stream stream(device());
  const DeviceBuffer x(device(), Dtype::kI32, {1});
  for (const bool in_loop : {false, true}) {
    GraphCapture capture(stream);
    fill_bytes(stream, view(x), 0);
    if (in_loop) {
      std::ignore = capture.begin_loop();
    }
    EXPECT_THROW(stream.synchronize(), DeviceError);
    if (in_loop) {
      EXPECT_THROW(std::ignore = capture.end(), DeviceError);
    } else {
      EXPECT_THROW(std::ignore = capture.begin_loop(), DeviceError);
    }
    EXPECT_FALSE(stream.is_capturing());
  }
  GraphCapture twice(stream);
  std::ignore = twice.begin_loop();
  EXPECT_THROW(std::ignore = twice.begin_loop(), CheckError);
}

TEST_P(GraphLoops, NameTheirNodesAndAreUpdatedAsAWhole) {
  if (device().is_cuda()) {
    GTEST_SKIP() << "CUDA names kernels by their symbols, and updates no conditional nodes";
  }
  const Stream stream(device());
  const PinnedBuffer out = counting(1);
  const DeviceBuffer x(device(), Dtype::kI32, {1});
  const auto capture_with = [&](int term, bool loops) {
    GraphCapture capture(stream);
    fill_bytes(stream, view(x), 0);
    const LoopCondition condition = capture.begin_loop();
    testing::scale_add(stream, view(x), 1, term);
    if (loops) {
      testing::repeat_until(stream, view(x), 10, condition);
    }
    return capture.end();
  };
  Graph graph = capture_with(4, true);
  EXPECT_THAT(graph.node_names(), ElementsAre("fill", "scale_add", "repeat_until"));
  GraphExec exec(std::move(graph));
  EXPECT_FALSE(exec.update(capture_with(4, false)));
  ASSERT_TRUE(exec.update(capture_with(9, true)));
  exec.launch(stream);
  copy(stream, view(out), view(x));
  stream.synchronize();
  EXPECT_EQ(ints(out)[0], 18);
}

TEST(GraphLoopsOnTheNullDevice, HaveOneTurn) {
  if (!Device::available() || Device::open({})->is_cuda()) {
    GTEST_SKIP() << "of the virtual device";
  }
  DeviceOptions options;
  options.mode = DeviceMode::kNull;
  options.null_mode_names = {"add"};
  const auto device = Device::open(options);
  const Stream stream(*device);
  const PinnedBuffer memory(*device, Dtype::kI32, {1});
  const DeviceView x = memory.device_view(Dtype::kI32, {1});
  memory.view(Dtype::kI32, {1}).span<std::int32_t>()[0] = 3;
  GraphCapture capture(stream);
  const LoopCondition condition = capture.begin_loop();
  testing::add(stream, x, x, x);
  testing::repeat_until(stream, x, 100, condition);
  GraphExec exec(capture.end());
  exec.launch(stream);
  EXPECT_EQ(memory.view(Dtype::kI32, {1}).span<std::int32_t>()[0], 6);
}

}  // namespace
}  // namespace rigel
