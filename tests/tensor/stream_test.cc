#include "tensor/stream.h"

#include "tensor/event.h"
#include "tensor/host_function.h"
#include "tests/tensor/device_modes.h"
#include "tests/tensor/kernels_for_tests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace rigel {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class Streams : public testing::EveryMode {};
INSTANTIATE_TEST_SUITE_P(, Streams, testing::every_mode(), testing::name_of_mode);

// A host function that blocks its stream until the test opens the gate.
struct Gate {
  std::atomic<bool> open{false};
  static void pass(void* gate) {
    while (!static_cast<Gate*>(gate)->open.load()) {
      std::this_thread::yield();
    }
  }
};

TEST_P(Streams, RunTheirWorkInOrder) {
  const Stream stream(device());
  const PinnedBuffer in = counting(1000);
  const PinnedBuffer out = counting(1000);
  const DeviceBuffer a(device(), Dtype::kI32, {1000});
  const DeviceBuffer b(device(), Dtype::kI32, {1000});
  copy(stream, view(a), view(in));
  testing::scale_add(stream, view(a), 3, 1);
  testing::add(stream, view(b), view(a), view(a));
  testing::scale_add(stream, view(b), 1, -2);
  copy(stream, view(out), view(b));
  stream.synchronize();
  for (int index = 0; index < 1000; ++index) {
    ASSERT_EQ(ints(out)[static_cast<std::size_t>(index)], 6 * index);
  }
}

TEST_P(Streams, KeepMoreWorkThanTheirRingHasSlots) {
  const Stream stream(device());
  const PinnedBuffer out = counting(1);
  const DeviceBuffer x(device(), Dtype::kI32, {1});
  fill_bytes(stream, view(x), 0);
  for (int turn = 0; turn < 3000; ++turn) {
    testing::scale_add(stream, view(x), 1, 1);
  }
  copy(stream, view(out), view(x));
  stream.synchronize();
  EXPECT_EQ(ints(out)[0], 3000);
}

TEST_P(Streams, WaitForEventsOfOtherStreams) {
  const Stream first(device());
  const Stream second(device());
  const Event done(device());
  const PinnedBuffer out = counting(64);
  const DeviceBuffer x(device(), Dtype::kI32, {64});
  for (int turn = 0; turn < 50; ++turn) {
    fill_bytes(first, view(x), 0);
    testing::scale_add(first, view(x), 1, turn);
    done.record(first);
    second.wait(done);
    testing::scale_add(second, view(x), 2, 1);
    done.record(second);
    first.wait(done);
    copy(first, view(out), view(x));
    first.synchronize();
    EXPECT_THAT(ints(out), Each(2 * turn + 1));
  }
}

TEST_P(Streams, RunHostFunctionsInOrder) {
  const Stream stream(device());
  std::vector<int> seen;
  struct Note {
    std::vector<int>* seen;
    int value;
    static void run(void* self) {
      auto* note = static_cast<Note*>(self);
      note->seen->push_back(note->value);
    }
  };
  std::vector<Note> notes;
  for (int value = 0; value < 5; ++value) {
    notes.push_back({&seen, value});
  }
  for (Note& note : notes) {
    enqueue_host_function(stream, "note", &Note::run, &note);
  }
  stream.synchronize();
  EXPECT_EQ(seen, (std::vector{0, 1, 2, 3, 4}));
}

TEST_P(Streams, AnEventThatWasNeverRecordedIsPast) {
  const Event event(device());
  EXPECT_TRUE(event.query());
  event.synchronize();
  const Stream stream(device());
  stream.wait(event);
  stream.synchronize();
}

TEST_P(Streams, APollLoopComesToAnEnd) {
  const Stream stream(device());
  const Event event(device());
  const PinnedBuffer out = counting(1);
  const DeviceBuffer x(device(), Dtype::kI32, {1});
  fill_bytes(stream, view(x), 1);
  copy(stream, view(out), view(x));
  event.record(stream);
  while (!event.query()) {
    std::this_thread::yield();
  }
  EXPECT_EQ(ints(out)[0], 0x01010101);
  EXPECT_TRUE(stream.query());
}

TEST_P(Streams, TimedEventsMeasureTheWorkBetweenThem) {
  const Stream stream(device());
  TimedEvent begin(device());
  TimedEvent end(device());
  begin.record(stream);
  enqueue_host_function(
      stream, "sleep", [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); },
      nullptr);
  end.record(stream);
  end.synchronize();
  EXPECT_GE(end.elapsed_us_since(begin), 1900);
}

TEST_P(Streams, ACopyFromPageableMemoryIsDoneWhenItReturns) {
  const Stream stream(device());
  const DeviceBuffer x(device(), Dtype::kI32, {100});
  std::vector<std::int32_t> values(100, 7);
  copy(stream, view(x), const_host_view(std::span<const std::int32_t>(values)));
  values.assign(100, 8);
  std::vector<std::int32_t> back(100);
  copy(stream, host_view(std::span(back)), view(x));
  EXPECT_THAT(back, Each(7));
}

TEST_P(Streams, EmptyCopiesAndLaunchesDoNothing) {
  const Stream stream(device());
  const DeviceView nothing(nullptr, Dtype::kI32, {0});
  const HostView nothing_here(nullptr, Dtype::kI32, {0});
  copy(stream, nothing, nothing_here);
  copy(stream, nothing_here, nothing);
  fill_bytes(stream, nothing, 1);
  testing::scale_add(stream, nothing, 1, 1);
  stream.synchronize();
}

TEST_P(Streams, CopiesRefuseViewsThatDiffer) {
  const Stream stream(device());
  const PinnedBuffer host = counting(8);
  const DeviceBuffer x(device(), Dtype::kI32, {8});
  EXPECT_THROW(copy(stream, x.view(Dtype::kF32, {8}), view(host)), CheckError);
  EXPECT_THROW(copy(stream, view(x).slice(0, 0, 4), view(host)), CheckError);
  const DeviceView columns = x.view(Dtype::kI32, {4, 2}).slice(1, 0, 1);
  EXPECT_THROW(copy(stream, columns, view(host).slice(0, 0, 4)), CheckError);
}

TEST_P(Streams, AFailedKernelIsSeenAtTheNextSynchronise) {
  if (device().is_cuda()) {
    GTEST_SKIP() << "a hang on a GPU";
  }
  const Stream stream(device());
  testing::diverge(stream);
  EXPECT_THAT(testing::error_of([&] { stream.synchronize(); }),
              AllOf(HasSubstr("cudaErrorLaunchFailure (719)"), HasSubstr("diverge")));
  // Reported once; the stream works again.
  stream.synchronize();
  const DeviceBuffer x(device(), Dtype::kI32, {8});
  const PinnedBuffer out = counting(8);
  fill_bytes(stream, view(x), 0);
  copy(stream, view(out), view(x));
  stream.synchronize();
  EXPECT_THAT(ints(out), Each(0));
}

TEST_P(Streams, WorkAfterAFailedKernelIsSkipped) {
  if (device().is_cuda()) {
    GTEST_SKIP() << "a hang on a GPU";
  }
  const Stream stream(device());
  const DeviceBuffer x(device(), Dtype::kI32, {8});
  const PinnedBuffer out = counting(8);
  Gate gate;
  if (GetParam() != DeviceMode::kThreaded) {
    gate.open = true;
  }
  fill_bytes(stream, view(x), 0);
  enqueue_host_function(stream, "gate", &Gate::pass, &gate);
  testing::diverge(stream);
  const std::string at_once = testing::error_of([&] { fill_bytes(stream, view(x), 1); });
  gate.open = true;
  const std::string later = testing::error_of([&] { stream.synchronize(); });
  EXPECT_THAT(at_once + later, HasSubstr("diverge"));
  copy(stream, view(out), view(x));
  stream.synchronize();
  EXPECT_THAT(ints(out), Each(0));
}

TEST_P(Streams, AStreamCanBeClosedAndItsEventsStayPast) {
  const Event event(device());
  {
    const Stream stream(device());
    const DeviceBuffer x(device(), Dtype::kI32, {8});
    fill_bytes(stream, view(x), 1);
    event.record(stream);
  }
  const Stream other(device());
  EXPECT_TRUE(event.query());
  other.wait(event);
  other.synchronize();
}

TEST_P(Streams, DeviceSynchroniseWaitsForAllStreams) {
  const Stream first(device());
  const Stream second(device());
  const PinnedBuffer out_first = counting(8);
  const PinnedBuffer out_second = counting(8);
  const DeviceBuffer x(device(), Dtype::kI32, {8});
  const DeviceBuffer y(device(), Dtype::kI32, {8});
  fill_bytes(first, view(x), 1);
  fill_bytes(second, view(y), 2);
  copy(first, view(out_first), view(x));
  copy(second, view(out_second), view(y));
  device().synchronize();
  EXPECT_THAT(ints(out_first), Each(0x01010101));
  EXPECT_THAT(ints(out_second), Each(0x02020202));
}

TEST(StreamRef, HasNoDefaultStream) {
  static_assert(!std::is_constructible_v<StreamRef, std::nullptr_t>);
  static_assert(!std::is_constructible_v<StreamRef, int>);
  static_assert(!std::is_default_constructible_v<StreamRef>);
  static_assert(!std::is_copy_constructible_v<Stream>);
}

TEST(ThreadedStreams, RunConcurrently) {
  if (!Device::available()) {
    GTEST_SKIP() << "no device";
  }
  const auto device = Device::open({});
  const Stream blocked(*device);
  const Stream free(*device);
  Gate gate;
  enqueue_host_function(blocked, "gate", &Gate::pass, &gate);
  std::atomic<bool> ran{false};
  enqueue_host_function(
      free, "mark", [](void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); }, &ran);
  free.synchronize();
  EXPECT_TRUE(ran.load());
  EXPECT_FALSE(blocked.query());
  gate.open = true;
  blocked.synchronize();
}

TEST(ThreadedStreams, TakeWorkFromSeveralThreads) {
  if (!Device::available()) {
    GTEST_SKIP() << "no device";
  }
  const auto device = Device::open({});
  std::vector<std::thread> threads;
  std::atomic<int> num_right{0};
  const Stream shared(*device);
  for (int index = 0; index < 4; ++index) {
    threads.emplace_back([&, index] {
      const Stream stream(*device);
      const Event event(*device);
      const DeviceBuffer x(*device, Dtype::kI32, {16});
      const PinnedBuffer out(*device, Dtype::kI32, {16});
      const DeviceView on_device = x.view(Dtype::kI32, {16});
      for (int turn = 0; turn < 100; ++turn) {
        fill_bytes(stream, on_device, 0);
        testing::scale_add(stream, on_device, 1, index + turn);
        event.record(stream);
        shared.wait(event);
        copy(shared, out.view(Dtype::kI32, {16}), on_device);
        event.record(shared);
        event.synchronize();
        num_right += out.view(Dtype::kI32, {16}).span<std::int32_t>()[15] == index + turn ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(num_right.load(), 400);
}

TEST(NullDevice, RunsOnlyWhatItIsTold) {
  if (!Device::available() || Device::open({})->is_cuda()) {
    GTEST_SKIP() << "of the virtual device";
  }
  DeviceOptions options;
  options.mode = DeviceMode::kNull;
  options.null_mode_names = {"add"};
  const auto device = Device::open(options);
  const Stream stream(*device);
  const PinnedBuffer memory(*device, Dtype::kI32, {3});
  const auto at = [&](int index) { return memory.device_view(Dtype::kI32, {1}, 4 * index); };
  const auto values = memory.view(Dtype::kI32, {3}).span<std::int32_t>();
  values[0] = 1;
  values[1] = 2;
  values[2] = 0;
  testing::scale_add(stream, at(0), 5, 5);
  testing::add(stream, at(2), at(0), at(1));
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[2], 3);
  stream.synchronize();
}

TEST(NullDevice, CopiesZerosToTheHostAndNothingToTheDevice) {
  if (!Device::available() || Device::open({})->is_cuda()) {
    GTEST_SKIP() << "of the virtual device";
  }
  DeviceOptions options;
  options.mode = DeviceMode::kNull;
  const auto device = Device::open(options);
  const Stream stream(*device);
  const DeviceBuffer memory(*device, Dtype::kI32, {2});
  const PinnedBuffer host(*device, Dtype::kI32, {2});
  const HostView values = host.view(Dtype::kI32, {2});
  std::ranges::fill(values.span<std::int32_t>(), 7);
  copy(stream, memory.view(Dtype::kI32, {2}), ConstHostView(values));
  copy(stream, values, ConstDeviceView(memory.view(Dtype::kI32, {2})));
  stream.synchronize();
  EXPECT_EQ(values.span<std::int32_t>()[0], 0);
  EXPECT_EQ(values.span<std::int32_t>()[1], 0);
}

}  // namespace
}  // namespace rigel
