#include "tensor/launch.h"

#include "simt/pool.h"
#include "tensor/trace.h"
#include "tests/tensor/device_modes.h"
#include "tests/tensor/kernels_for_tests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace rigel {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

struct Params {
  std::int32_t* values;
  int num_values;
};

void set_to_seven(simt::Pool& pool, const Params& params) {
  pool.parallel_for(params.num_values, [&](int index) { params.values[index] = 7; });
}

class Launches : public testing::EveryMode {};
INSTANTIATE_TEST_SUITE_P(, Launches, testing::every_mode(), testing::name_of_mode);

TEST_P(Launches, AreNotedWithTheirTraffic) {
  const Stream stream(device());
  const DeviceBuffer x(device(), Dtype::kI32, {100});
  LaunchLog log;
  fill_bytes(stream, view(x), 0);
  device().set_launch_log(&log);
  testing::scale_add(stream, view(x), 1, 1);
  {
    const LayerScope layer(device(), 3);
    testing::add(stream, view(x), view(x), view(x));
  }
  testing::scale_add(stream, view(x), 1, 1);
  device().set_launch_log(nullptr);
  testing::scale_add(stream, view(x), 1, 1);
  stream.synchronize();
  const std::vector<LaunchRecord> records = log.take();
  ASSERT_EQ(records.size(), 3U);
  EXPECT_STREQ(records[0].name, "scale_add");
  EXPECT_EQ(records[0].layer, -1);
  EXPECT_STREQ(records[1].name, "add");
  EXPECT_EQ(records[1].layer, 3);
  EXPECT_EQ(records[2].layer, -1);
  EXPECT_EQ(records[1].traffic.read_bytes, 800);
  EXPECT_EQ(records[1].traffic.written_bytes, 400);
  EXPECT_EQ(records[1].traffic.flops, 100);
  EXPECT_TRUE(log.take().empty());
}

TEST_P(Launches, UseTheNativeVariantOnTheCpu) {
  const Stream stream(device());
  const DeviceBuffer x(device(), Dtype::kI32, {8});
  const PinnedBuffer out = counting(8);
  const Params params{view(x).data<std::int32_t>(), 8};
  const bool launched = launch_native(stream, "seven", {}, &set_to_seven, params);
  EXPECT_EQ(launched, !device().is_cuda());
  if (launched) {
    copy(stream, view(out), view(x));
    stream.synchronize();
    EXPECT_THAT(ints(out), Each(7));
  }
  void (*none)(simt::Pool&, const Params&) = nullptr;
  EXPECT_FALSE(launch_native(stream, "seven", {}, none, params));
}

TEST(DeviceTexts, ReplaceNativeVariantsByName) {
  if (!Device::available()) {
    GTEST_SKIP() << "no device";
  }
  for (const auto& [texts, native] : {std::pair{"all", false}, std::pair{"other,seven", false},
                                      std::pair{"other", true}, std::pair{"", true}}) {
    DeviceOptions options;
    options.device_texts = texts;
    const auto device = Device::open(options);
    const Stream stream(*device);
    const DeviceBuffer x(*device, Dtype::kI32, {8});
    const Params params{x.view(Dtype::kI32, {8}).data<std::int32_t>(), 8};
    EXPECT_EQ(launch_native(stream, "seven", {}, &set_to_seven, params),
              native && !device->is_cuda())
        << texts;
    stream.synchronize();
  }
}

TEST_P(Launches, TraceRangesKeepTheLatestSpans) {
  TraceRing ring(4);
  { const TraceRange unseen(device(), "unseen"); }
  device().set_trace(&ring);
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    const TraceRange range(device(), name);
    std::this_thread::yield();
  }
  device().set_trace(nullptr);
  std::vector<std::string> names;
  for (const TraceSpan& span : ring.snapshot()) {
    names.emplace_back(span.name);
    EXPECT_LE(span.begin_ns, span.end_ns);
  }
  EXPECT_THAT(names, ElementsAre("b", "c", "d", "e"));
}

}  // namespace
}  // namespace rigel
