#include "kernels/turns.h"

#include "tensor/trace.h"
#include "tests/kernels/kernel_test.h"

#include <cstring>

namespace rigel::kernels {
namespace {

using Ints = std::vector<std::int32_t>;
using Longs = std::vector<std::int64_t>;

constexpr std::int64_t kRingEntries = 8;
constexpr std::int32_t kEos = 7;

/// A row that goes on for long.
StopRow going_on() {
  StopRow row{.generation = 1,
              .options = 0,
              .min_tokens = 0,
              .max_tokens = 1'000,
              .max_length = 4'000,
              .num_prompt_tokens = 10,
              .num_generated = 5,
              .stop_ids = {}};
  set_stop_ids(row, {});
  return row;
}

class Turns : public KernelTest {
 protected:
  /// A step of these lanes, each at position 100 + its number.
  struct Lanes {
    std::vector<StopRow> stop_rows;
    Ints rows;
    Ints tokens;
    std::int64_t first_step = 40;
    std::int64_t last_step = 40;
  };
  struct Result {
    Ints positions;
    std::int64_t num_turns = 0;
    Longs tags;  // of lane 0's records, by entry of the ring
  };

  /// Turns of nothing but the stop test, in one launch.
  Result run(const Lanes& lanes) {
    const auto num_lanes = static_cast<std::int64_t>(lanes.rows.size());
    const auto num_rows = static_cast<std::int64_t>(lanes.stop_rows.size());
    Ints words(lanes.stop_rows.size() * kStopRowWords);
    std::memcpy(words.data(), lanes.stop_rows.data(), words.size() * sizeof(std::int32_t));
    Ints start;
    for (std::int32_t lane = 0; lane < num_lanes; ++lane) {
      start.push_back(100 + lane);
    }
    const DeviceView positions = upload({num_lanes}, start);
    const DeviceView others = upload({num_lanes}, start);
    const DeviceView step = upload({1}, Longs{lanes.first_step});
    const StopTest test{.stop_rows = upload({num_rows, kStopRowWords}, words),
                        .eos_ids = upload({1}, Ints{kEos}),
                        .rows = upload({num_lanes}, lanes.rows),
                        .tokens = upload({num_lanes}, lanes.tokens)};
    const ConstDeviceView last_step = upload({1}, Longs{lanes.last_step});
    const DeviceView ring = output(
        Dtype::kU8, {kRingEntries, num_lanes * static_cast<std::int64_t>(sizeof(StepRecord))});
    const DeviceView counting[] = {positions, others};
    GraphCapture capture(stream());
    const LoopCondition condition = capture.begin_loop();
    stop_copy(stream(), {ring, step}, {}, &test, 0);
    end_turn(stream(), {counting, step, last_step}, test, condition);
    GraphExec exec(capture.end());
    exec.launch(stream());

    Result result{.positions = download<std::int32_t>(positions),
                  .num_turns = download<std::int64_t>(step)[0] - lanes.first_step,
                  .tags = {}};
    EXPECT_EQ(download<std::int32_t>(others), result.positions);
    const std::vector<std::uint8_t> bytes = download<std::uint8_t>(ring);
    for (std::int64_t entry = 0; entry < kRingEntries; ++entry) {
      StepRecord record;
      std::memcpy(&record, &bytes[static_cast<std::size_t>(entry) * bytes.size() / kRingEntries],
                  sizeof record);
      result.tags.push_back(static_cast<std::int64_t>(record.step));
    }
    return result;
  }
};

TEST_F(Turns, CountUpAndRecordEachUnderItsOwnNumber) {
  const std::vector<StopRow> rows(3, going_on());
  in_every_mode([&] {
    const Result one = run({rows, {2, 0, 1}, {3, 4, 5}, 40, 40});
    EXPECT_EQ(one.positions, (Ints{101, 102, 103}));
    EXPECT_EQ(one.tags, (Longs{40, -1, -1, -1, -1, -1, -1, -1}));
    const Result five = run({rows, {2, 0, 1}, {3, 4, 5}, 45, 49});
    EXPECT_EQ(five.num_turns, 5);
    EXPECT_EQ(five.positions, (Ints{105, 106, 107}));
    EXPECT_EQ(five.tags, (Longs{48, 49, -1, -1, -1, 45, 46, 47}));
  });
}

TEST_F(Turns, EndWithTheFirstLaneThatTheHostMustSee) {
  in_every_mode([&] {
    Lanes lanes{{going_on(), going_on(), going_on()}, {0, 1, 2}, {3, 4, 5}, 40, 45};
    lanes.stop_rows[1].max_tokens = 8;  // three more
    EXPECT_EQ(run(lanes).num_turns, 3);
    lanes.stop_rows[2].max_length = 17;  // two more
    EXPECT_EQ(run(lanes).num_turns, 2);
    lanes.tokens = {3, kEos, 5};
    EXPECT_EQ(run(lanes).num_turns, 1);
    lanes = {{going_on()}, {0}, {-1}, 40, 45};  // no finite logits
    EXPECT_EQ(run(lanes).num_turns, 1);
    lanes.tokens = {3};
    const Ints ids{20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 3};
    set_stop_ids(lanes.stop_rows[0], ids);  // the host knows the rest
    EXPECT_EQ(run(lanes).num_turns, 1);
    lanes.stop_rows[0].min_tokens = 7;  // not before the third turn
    EXPECT_EQ(run(lanes).num_turns, 3);
  });
}

TEST_F(Turns, LeavePaddingAlone) {
  in_every_mode([&] {
    // A row outside the table is padding too; what padding has for tokens is as the buffer was.
    const Result turns = run({{going_on()}, {-1, 0, 1, -1}, {kEos, 3, kEos, -1}, 40, 42});
    EXPECT_EQ(turns.num_turns, 3);
    EXPECT_EQ(turns.positions, (Ints{100, 104, 102, 103}));
    EXPECT_EQ(run({{going_on()}, {-1}, {-1}, 40, 41}).num_turns, 2);
  });
}

TEST_F(Turns, TakeMoreLanesThanTheirBlockHasThreads) {
  constexpr std::int32_t kLanes = 300;
  Lanes lanes{std::vector<StopRow>(kLanes, going_on()), {}, Ints(kLanes, 3), 40, 43};
  for (std::int32_t lane = 0; lane < kLanes; ++lane) {
    lanes.rows.push_back(kLanes - 1 - lane);
  }
  in_every_mode([&] {
    EXPECT_EQ(run(lanes).num_turns, 4);
    Lanes ending = lanes;
    ending.tokens[290] = kEos;
    const Result one = run(ending);
    EXPECT_EQ(one.num_turns, 1);
    EXPECT_EQ(one.positions.back(), 100 + kLanes);
  });
}

TEST_F(Turns, DeclareTheirBytesAndRefuseWhatDoesNotFit) {
  in_default_mode([&] {
    const DeviceView column = upload({2}, Ints{0, 0});
    const DeviceView step = upload({1}, Longs{1});
    const StopTest test{.stop_rows = output(Dtype::kI32, {4, kStopRowWords}),
                        .eos_ids = upload({1}, Ints{kEos}),
                        .rows = upload({2}, Ints{0, 1}),
                        .tokens = upload({2}, Ints{5, 5})};
    const DeviceView too_many[] = {column, column, column, column, column};
    const DeviceView too_long[] = {output(Dtype::kI32, {3})};
    const DeviceView floats[] = {output(Dtype::kF32, {2})};
    LaunchLog log;
    device().set_launch_log(&log);
    GraphCapture capture(stream());
    const LoopCondition condition = capture.begin_loop();
    for (const std::span<const DeviceView> columns :
         {std::span<const DeviceView>(too_many), std::span<const DeviceView>(too_long),
          std::span<const DeviceView>(floats)}) {
      EXPECT_THROW(end_turn(stream(), {columns, step, step}, test, condition), CheckError);
    }
    EXPECT_THROW(end_turn(stream(), {{}, column, step}, test, condition), CheckError);
    end_turn(stream(), {std::span(too_many).first(2), step, step}, test, condition);
    device().set_launch_log(nullptr);
    const std::vector<LaunchRecord> launches = log.take();
    ASSERT_EQ(launches.size(), 1u);
    EXPECT_EQ(launches[0].traffic.read_bytes, 2 * (72 + 2 * 4) + 4 + 16);
    EXPECT_EQ(launches[0].traffic.written_bytes, 2 * 2 * 4 + 8);
  });
}

}  // namespace
}  // namespace rigel::kernels
