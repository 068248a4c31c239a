#include "kernels/stop.h"

#include "tensor/trace.h"
#include "tests/kernels/kernel_test.h"

#include <array>
#include <cstring>

namespace rigel::kernels {
namespace {

using Ints = std::vector<std::int32_t>;

constexpr std::int64_t kEntries = 4;
constexpr std::int64_t kRecordBytes = sizeof(StepRecord);

StopRow plain_row(std::uint32_t generation) {
  StopRow row{.generation = generation,
              .options = 0,
              .min_tokens = 0,
              .max_tokens = 1'000,
              .max_length = 4'000,
              .num_prompt_tokens = 10,
              .num_generated = 0,
              .stop_ids = {}};
  set_stop_ids(row, {});
  return row;
}

/// The words of records and rows, as the tensors hold them.
template <class Word, class Struct>
std::vector<Word> words_of(const std::vector<Struct>& values) {
  std::vector<Word> words(values.size() * sizeof(Struct) / sizeof(Word));
  if (!words.empty()) {
    std::memcpy(words.data(), values.data(), words.size() * sizeof(Word));
  }
  return words;
}

bool same(const StepRecord& a, const StepRecord& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

class Stop : public KernelTest {
 protected:
  DeviceView upload_rows(const std::vector<StopRow>& rows) {
    return upload({static_cast<std::int64_t>(rows.size()), kStopRowWords},
                  words_of<std::int32_t>(rows));
  }
  DeviceView empty_ring(std::int64_t max_lanes) {
    return output(Dtype::kU8, {kEntries, max_lanes * kRecordBytes});
  }
  DeviceView ids(const Ints& values) {
    return upload({static_cast<std::int64_t>(values.size())}, values);
  }
  DeviceView tag(std::int64_t step) { return upload({1}, std::vector<std::int64_t>{step}); }

  /// What the lanes sampled, tested into a ring of nothing but records.
  void test_lanes(const DeviceView& ring, const DeviceView& stop_rows, const DeviceView& eos_ids,
                  const DeviceView& lane_rows, const DeviceView& tokens, const DeviceView& step) {
    const StopTest test{stop_rows, eos_ids, lane_rows, tokens};
    stop_copy(stream(), {ring, step}, {}, &test, 0);
  }
  std::vector<StepRecord> records_of(const DeviceView& ring) {
    const std::vector<std::uint8_t> bytes = download<std::uint8_t>(ring);
    std::vector<StepRecord> records(bytes.size() / sizeof(StepRecord));
    std::memcpy(records.data(), bytes.data(), bytes.size());
    return records;
  }
  Ints generated_of(const DeviceView& stop_rows) {
    const Ints words = download<std::int32_t>(stop_rows);
    Ints counts;
    for (std::size_t row = 0; row < words.size() / kStopRowWords; ++row) {
      StopRow state;
      std::memcpy(&state, &words[row * kStopRowWords], sizeof state);
      counts.push_back(state.num_generated);
    }
    return counts;
  }
  /// The flags of one token of one row, by way of the kernel.
  std::uint32_t flags_of(const StopRow& row, std::int32_t token, const Ints& eos_ids) {
    const DeviceView ring = empty_ring(1);
    test_lanes(ring, upload_rows({row}), ids(eos_ids), ids({0}), ids({token}), tag(4));
    return records_of(ring)[0].flags;
  }
};

TEST_F(Stop, RecordsWhatEachLaneSampledInItsStepsEntry) {
  std::vector<StopRow> rows;
  for (std::uint32_t row = 0; row < 4; ++row) {
    rows.push_back(plain_row(100 + row));
    rows.back().num_generated = static_cast<std::int32_t>(row * 7);
  }
  in_every_mode([&] {
    const DeviceView ring = empty_ring(5);
    const DeviceView stop_rows = upload_rows(rows);
    const DeviceView eos = ids({2});
    test_lanes(ring, stop_rows, eos, ids({3, 0}), ids({77, 78}), tag(6));
    test_lanes(ring, stop_rows, eos, ids({3, 1, 0}), ids({79, 80, 81}), tag(7));
    const std::vector<StepRecord> records = records_of(ring);
    EXPECT_TRUE(same(records[2 * 5 + 0], {3, 103, 77, 0, 22, 32, 6}));
    EXPECT_TRUE(same(records[2 * 5 + 1], {0, 100, 78, 0, 1, 11, 6}));
    EXPECT_TRUE(same(records[3 * 5 + 0], {3, 103, 79, 0, 23, 33, 7}));
    EXPECT_TRUE(same(records[3 * 5 + 1], {1, 101, 80, 0, 8, 18, 7}));
    EXPECT_TRUE(same(records[3 * 5 + 2], {0, 100, 81, 0, 2, 12, 7}));
    for (const std::size_t untouched : {0, 4, 5, 9, 12, 14, 18, 19}) {
      EXPECT_EQ(records[untouched].step, ~std::uint64_t{0}) << untouched;
    }
    EXPECT_EQ(generated_of(stop_rows), (Ints{2, 8, 14, 23}));
  });
}

TEST_F(Stop, T_HR_2_PaddingLanesWriteNothing) {
  const std::vector<StopRow> rows{plain_row(1), plain_row(2)};
  in_every_mode([&] {
    const DeviceView ring = empty_ring(6);
    const DeviceView stop_rows = upload_rows(rows);
    // The last row lies outside the table; tokens of padding lanes are as the buffers were.
    test_lanes(ring, stop_rows, ids({}), ids({-1, 1, -1, -1, 2}), ids({-1, 5, 1 << 30, 7, 8}),
               tag(8));
    const std::vector<StepRecord> records = records_of(ring);
    for (std::size_t lane = 0; lane < records.size(); ++lane) {
      EXPECT_EQ(records[lane].step, lane == 1 ? 8 : ~std::uint64_t{0}) << lane;
    }
    EXPECT_TRUE(same(records[1], {1, 2, 5, 0, 1, 11, 8}));
    EXPECT_EQ(generated_of(stop_rows), (Ints{0, 1}));
  });
}

TEST_F(Stop, EosAndStopIdsEndARow) {
  in_every_mode([&] {
    StopRow row = plain_row(1);
    EXPECT_EQ(flags_of(row, 2, {2}), kStopEos);
    EXPECT_EQ(flags_of(row, 3, {9, 2, 3}), kStopEos);
    EXPECT_EQ(flags_of(row, 4, {9, 2, 3}), 0u);
    set_stop_ids(row, Ints{5, 6, 7, 8, 9, 10, 11, 12, 13});
    EXPECT_EQ(flags_of(row, 5, {2}), kStopToken);
    EXPECT_EQ(flags_of(row, 13, {2}), kStopToken);
    EXPECT_EQ(flags_of(row, 14, {2}), 0u);
    EXPECT_EQ(flags_of(row, 9, {9}), kStopEos | kStopToken);
    row.options |= kIgnoreEos;
    EXPECT_EQ(flags_of(row, 2, {2}), 0u);
    EXPECT_EQ(flags_of(row, 9, {9}), kStopToken);
  });
}

TEST_F(Stop, IdsThatDoNotFitAreLeftToTheHost) {
  in_every_mode([&] {
    StopRow row = plain_row(1);
    set_stop_ids(row, Ints{5, 6, 7, 8, 9, 10, 11, 12, 13, 14});
    EXPECT_EQ(flags_of(row, 13, {}), kStopToken);
    EXPECT_EQ(flags_of(row, 14, {}), kHostMustCheck);
    EXPECT_EQ(flags_of(row, 2, {2}), kStopEos | kHostMustCheck);
    row.min_tokens = 1;
    EXPECT_EQ(flags_of(row, 14, {}), 0u);
    row.min_tokens = 0;
    set_stop_ids(row, Ints{5});  // a shorter list clears what the longer one left
    EXPECT_EQ(flags_of(row, 14, {}), 0u);
    EXPECT_EQ(flags_of(row, 13, {}), 0u);
  });
}

TEST_F(Stop, IdsWaitForMinTokensAndLengthsDoNot) {
  in_every_mode([&] {
    StopRow row = plain_row(1);
    set_stop_ids(row, Ints{5});
    row.min_tokens = 3;
    row.num_generated = 2;
    EXPECT_EQ(flags_of(row, 5, {5}), 0u);  // the third token
    row.num_generated = 3;
    EXPECT_EQ(flags_of(row, 5, {5}), kStopEos | kStopToken);
    row.min_tokens = 100;
    row.max_tokens = 4;
    EXPECT_EQ(flags_of(row, 5, {5}), kStopMaxTokens);
  });
}

TEST_F(Stop, LengthsEndARow) {
  in_every_mode([&] {
    StopRow row = plain_row(1);
    row.max_tokens = 8;
    row.num_generated = 6;
    EXPECT_EQ(flags_of(row, 1, {}), 0u);
    row.num_generated = 7;
    EXPECT_EQ(flags_of(row, 1, {}), kStopMaxTokens);
    row.max_length = 18;
    EXPECT_EQ(flags_of(row, 1, {}), kStopMaxTokens | kStopMaxLength);
    row.max_tokens = 100;
    EXPECT_EQ(flags_of(row, 1, {1}), kStopMaxLength | kStopEos);
    row.max_length = 19;
    EXPECT_EQ(flags_of(row, 1, {}), 0u);
  });
}

TEST_F(Stop, AFailedSampleIsRecordedAndNotCounted) {
  StopRow row = plain_row(9);
  row.max_tokens = 1;
  row.num_generated = 3;
  in_every_mode([&] {
    const DeviceView ring = empty_ring(1);
    const DeviceView stop_rows = upload_rows({row});
    test_lanes(ring, stop_rows, ids({}), ids({0}), ids({-1}), tag(5));
    EXPECT_TRUE(same(records_of(ring)[1], {0, 9, -1, kSampleFailed, 3, 13, 5}));
    EXPECT_EQ(generated_of(stop_rows), (Ints{3}));
  });
}

/// Bytes that say where they come from.
std::vector<std::uint8_t> pattern(std::int64_t num_bytes, int seed) {
  std::vector<std::uint8_t> bytes;
  for (std::int64_t index = 0; index < num_bytes; ++index) {
    bytes.push_back(static_cast<std::uint8_t>(1 + (seed * 37 + index * 11) % 250));
  }
  return bytes;
}

TEST_F(Stop, BringsRowsOfAnyWidthAndLeavesThoseOfPaddingWhereTheyAre) {
  constexpr std::int64_t kLanes = 5;
  constexpr std::int64_t kEntryBytes = 2048;
  const std::vector<std::int64_t> widths{1, 4, 16, 31, 80, 100};
  const Ints lane_rows{2, 0, -1, 1, -1};
  const std::vector<StopRow> rows{plain_row(1), plain_row(2), plain_row(3)};
  in_every_mode([&] {
    const DeviceView ring = output(Dtype::kU8, {kEntries, kEntryBytes});
    std::vector<std::uint8_t> expected(kEntries * kEntryBytes, 0xFF);
    std::vector<StopBuffer> buffers;
    std::int64_t offset = kLanes * kRecordBytes;
    for (std::size_t index = 0; index < widths.size(); ++index) {
      const std::int64_t width = widths[index];
      const auto bytes = pattern(kLanes * width, static_cast<int>(index));
      buffers.push_back({upload({kLanes, width}, bytes), offset});
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        if (lane_rows[static_cast<std::size_t>(lane)] >= 0) {
          std::copy_n(bytes.begin() + lane * width, width,
                      expected.begin() + 2 * kEntryBytes + offset + lane * width);
        }
      }
      offset += kLanes * width + 3;  // places need no alignment
    }
    const auto scalar = pattern(7, 9);
    buffers.push_back({upload({7}, scalar).reshape({1, 7}), offset});
    std::ranges::copy(scalar, expected.begin() + 2 * kEntryBytes + offset);
    const StopTest test{upload_rows(rows), ids({}), ids(lane_rows), ids({5, 6, 7, 8, 9})};
    stop_copy(stream(), {ring, tag(6)}, buffers, &test, 0);
    const std::vector<std::uint8_t> got = download<std::uint8_t>(ring);
    const std::int64_t first = 2 * kEntryBytes + kLanes * kRecordBytes;
    EXPECT_TRUE(std::equal(got.begin() + first, got.end(), expected.begin() + first));
    EXPECT_TRUE(std::equal(got.begin(), got.begin() + 2 * kEntryBytes, expected.begin()))
        << "other steps' entries";
    StepRecord record;
    std::memcpy(&record, got.data() + 2 * kEntryBytes + 3 * kRecordBytes, sizeof record);
    EXPECT_TRUE(same(record, {1, 2, 8, 0, 1, 11, 6}));
  });
}

TEST_F(Stop, BringsRowsOfAStepInWhichNobodySamples) {
  in_every_mode([&] {
    const DeviceView ring = output(Dtype::kU8, {kEntries, 64});
    const auto bytes = pattern(40, 1);
    stop_copy(stream(), {ring, tag(3)}, std::array{StopBuffer{upload({5, 8}, bytes), 16}}, nullptr,
              0);
    const std::vector<std::uint8_t> got = download<std::uint8_t>(ring);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), got.begin() + 3 * 64 + 16));
    EXPECT_EQ(std::ranges::count(got, 0xFF), 4 * 64 - 40);
  });
}

TEST_F(Stop, TakesManyLanesAndStopsTheRightOnes) {
  constexpr int kLanes = 300;  // more than two blocks
  std::vector<StopRow> rows;
  for (int row = 0; row < kLanes; ++row) {
    rows.push_back(plain_row(static_cast<std::uint32_t>(row)));
    rows.back().max_tokens = 1 + row % 3;
  }
  in_every_mode([&] {
    const DeviceView ring = empty_ring(kLanes);
    const DeviceView stop_rows = upload_rows(rows);
    Ints lane_rows;
    Ints tokens;
    for (int lane = 0; lane < kLanes; ++lane) {
      lane_rows.push_back(lane % 11 == 4 ? -1 : kLanes - 1 - lane);
      tokens.push_back(lane);
    }
    for (std::int64_t step = 1; step <= 3; ++step) {
      test_lanes(ring, stop_rows, ids({}), ids(lane_rows), ids(tokens), tag(step));
    }
    const std::vector<StepRecord> records = records_of(ring);
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::int32_t row = lane_rows[lane];
      for (std::size_t step = 1; row >= 0 && step <= 3; ++step) {
        const auto count = static_cast<std::int32_t>(step);
        const StepRecord expected{row,          static_cast<std::uint32_t>(row),
                                  tokens[lane], count >= 1 + row % 3 ? kStopMaxTokens : 0,
                                  count,        10 + count,
                                  step};
        EXPECT_TRUE(same(records[step * kLanes + lane], expected)) << lane << ' ' << step;
      }
    }
  });
}

TEST_F(Stop, RowsAreSetByDifferences) {
  std::vector<StopRow> before;
  std::vector<StopRow> values;
  Ints rows;
  for (std::uint32_t row = 0; row < 50; ++row) {
    before.push_back(plain_row(row));
  }
  std::vector<StopRow> expected = before;
  for (std::uint32_t update = 0; update < 41; ++update) {
    values.push_back(plain_row(1'000 + update));
    set_stop_ids(values.back(), Ints{static_cast<std::int32_t>(update)});
    rows.push_back(update % 4 == 1 ? -1 : update % 4 == 2 ? 50 : static_cast<int>(update * 7 % 50));
    if (rows.back() >= 0 && rows.back() < 50) {
      expected[static_cast<std::size_t>(rows.back())] = values.back();
    }
  }
  in_every_mode([&] {
    const DeviceView stop_rows = upload_rows(before);
    set_stop_rows(stream(), stop_rows, ids(rows), upload_rows(values));
    set_stop_rows(stream(), stop_rows, ids({}), upload_rows({}));
    EXPECT_EQ(download<std::int32_t>(stop_rows), words_of<std::int32_t>(expected));
  });
}

TEST_F(Stop, DeclaresItsBytes) {
  in_default_mode([&] {
    const DeviceView stop_rows = upload_rows({plain_row(1), plain_row(2), plain_row(3)});
    const DeviceView three = ids({0, 1, 2});
    LaunchLog log;
    device().set_launch_log(&log);
    test_lanes(empty_ring(3), stop_rows, ids({8, 9}), three, three, tag(1));
    stop_copy(stream(), {empty_ring(1), tag(1)}, std::array{StopBuffer{three, 0}}, nullptr, 0);
    set_stop_rows(stream(), stop_rows, three,
                  upload_rows({plain_row(4), plain_row(5), plain_row(6)}));
    device().set_launch_log(nullptr);
    const std::vector<LaunchRecord> launches = log.take();
    ASSERT_EQ(launches.size(), 3u);
    EXPECT_EQ(launches[0].traffic.read_bytes, 3 * (64 + 4 + 4) + 2 * 4 + 8);
    EXPECT_EQ(launches[0].traffic.written_bytes, 3 * (32 + 4));
    EXPECT_EQ(launches[1].traffic.read_bytes, 3 * 4 + 8);
    EXPECT_EQ(launches[1].traffic.written_bytes, 3 * 4);
    EXPECT_EQ(launches[2].traffic.read_bytes, 3 * (64 + 4));
    EXPECT_EQ(launches[2].traffic.written_bytes, 3 * 64);
  });
}

TEST_F(Stop, RefusesWhatDoesNotFit) {
  in_default_mode([&] {
    const DeviceView stop_rows = upload_rows({plain_row(1)});
    const DeviceView two = ids({0, -1});
    EXPECT_THROW(test_lanes(empty_ring(1), stop_rows, ids({}), two, two, tag(1)), CheckError);
    EXPECT_THROW(test_lanes(empty_ring(2), stop_rows, ids({}), two, ids({0}), tag(1)), CheckError);
    EXPECT_THROW(test_lanes(empty_ring(2), two, ids({}), two, two, tag(1)), CheckError);
    const auto copy_at = [&](std::int64_t offset) {
      stop_copy(stream(), {empty_ring(1), tag(1)}, std::array{StopBuffer{two, offset}}, nullptr, 0);
    };
    EXPECT_THROW(copy_at(-4), CheckError);
    EXPECT_THROW(copy_at(28), CheckError);
    EXPECT_NO_THROW(copy_at(24));
    const std::vector<StopBuffer> many(kMaxStopBuffers + 1, StopBuffer{two, 0});
    EXPECT_THROW(stop_copy(stream(), {empty_ring(1), tag(1)}, many, nullptr, 0), CheckError);
    EXPECT_THROW(stop_copy(stream(), {output(Dtype::kU8, {kEntries, 40}), tag(1)}, {}, nullptr, 0),
                 CheckError)
        << "records are 16-byte aligned";
    EXPECT_THROW(set_stop_rows(stream(), stop_rows, two, stop_rows), CheckError);
  });
}

}  // namespace
}  // namespace rigel::kernels
