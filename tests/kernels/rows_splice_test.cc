#include "kernels/rows.h"
#include "tensor/copy.h"
#include "tensor/graph.h"
#include "tests/kernels/kernel_test.h"
#include "tests/kernels/rows_case.h"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace rigel::kernels {
namespace {

class RowSplices : public KernelTest {
 protected:
  struct SpliceShape {
    std::int64_t width, lanes, source_rows, fresh_rows;
    int seed;
  };
  struct SpliceCase {
    RowSplice splice;
    std::vector<std::uint8_t> expected;
  };

  SpliceCase make_case(const SpliceShape& shape, const Indices& source_rows) {
    const std::vector<std::uint8_t> before = numbered(shape.lanes, shape.width, shape.seed + 101);
    const std::vector<std::uint8_t> source = numbered(shape.source_rows, shape.width, shape.seed);
    const std::vector<std::uint8_t> fresh =
        numbered(shape.fresh_rows, shape.width, shape.seed + 53);
    SpliceCase made{{upload({shape.lanes, shape.width}, before),
                     upload({shape.source_rows, shape.width}, source),
                     {}},
                    {}};
    if (shape.fresh_rows > 0) {
      made.splice.fresh = upload({shape.fresh_rows, shape.width}, fresh);
    }
    Indices from_source(source_rows.size(), -1);
    Indices from_fresh(source_rows.size(), -1);
    for (std::size_t lane = 0; lane < source_rows.size(); ++lane) {
      const std::int32_t row = source_rows[lane];
      from_source[lane] = row < shape.source_rows ? row : -1;
      from_fresh[lane] = row <= -2 && -2 - row < shape.fresh_rows ? -2 - row : -1;
    }
    made.expected =
        moved(fresh, shape.width, from_fresh, moved(source, shape.width, from_source, before));
    return made;
  }

  SpliceTable table_of(std::span<const RowSplice> splices, std::size_t num_entries = 0) {
    num_entries = std::max(num_entries, splices.size());
    std::vector<std::int64_t> words(num_entries * kSpliceEntryWords, -1);
    const auto num_words = static_cast<std::int64_t>(words.size());
    const SpliceTable table = fill_splice_table(words, output(Dtype::kI64, {num_words}), splices);
    const DeviceView entries(const_cast<std::byte*>(table.entries.raw()), Dtype::kI64, {num_words});
    copy(stream(), entries, const_host_view(std::span<const std::int64_t>(words)));
    return table;
  }
  SpliceTable table_of(const std::vector<SpliceCase>& cases) {
    std::vector<RowSplice> splices;
    for (const SpliceCase& one : cases) {
      splices.push_back(one.splice);
    }
    return table_of(splices);
  }

  void expect_spliced(const std::vector<SpliceCase>& cases) {
    for (std::size_t signal = 0; signal < cases.size(); ++signal) {
      EXPECT_EQ(download<std::uint8_t>(cases[signal].splice.target), cases[signal].expected)
          << "signal " << signal;
    }
  }
};

TEST_F(RowSplices, MoveSignalsOfAnyWidthInOneLaunch) {
  // Rows of the step before, a fresh one, lanes that stay, and indices that the buffers do not have.
  const Indices source_rows{2, -1, 0, fresh_row(1), 5, fresh_row(2), -1, 6, fresh_row(0)};
  for (const std::int64_t extra_lanes : {0, 2}) {
    in_every_mode([&] {
      std::vector<SpliceCase> cases;
      int seed = 0;
      for (const std::int64_t width : {4, 16, 7, 2304, 1, 48, 36, 5, 2050, 30, 4'800}) {
        cases.push_back(make_case({.width = width,
                                   .lanes = size_of(source_rows) + extra_lanes,
                                   .source_rows = 6,
                                   .fresh_rows = 2,
                                   .seed = seed += 5},
                                  source_rows));
      }
      splice_rows(stream(), table_of(cases), upload({size_of(source_rows)}, source_rows));
      expect_spliced(cases);
    });
  }
}

TEST_F(RowSplices, TakeRowsOfItsOwnForEachSignal) {
  const Indices first{1, -1, fresh_row(0)};
  const Indices second{-1, 0, -1};
  in_every_mode([&] {
    const std::vector<SpliceCase> cases{
        make_case({.width = 12, .lanes = 3, .source_rows = 2, .fresh_rows = 1, .seed = 1}, first),
        make_case({.width = 33, .lanes = 3, .source_rows = 1, .fresh_rows = 0, .seed = 2}, second)};
    splice_rows(stream(), table_of(cases), upload({2, 3}, Indices{1, -1, fresh_row(0), -1, 0, -1}));
    expect_spliced(cases);
  });
}

TEST_F(RowSplices, TakeManyLanes) {
  Indices source_rows;
  for (std::int32_t lane = 0; lane < 131; ++lane) {
    source_rows.push_back(lane % 7 == 3 ? -1 : lane % 5 == 0 ? fresh_row(lane % 4) : lane * 3 % 90);
  }
  in_every_mode([&] {
    const std::vector<SpliceCase> cases{make_case(
        {.width = 4, .lanes = 131, .source_rows = 90, .fresh_rows = 4, .seed = 1}, source_rows)};
    splice_rows(stream(), table_of(cases), upload({131}, source_rows));
    expect_spliced(cases);
  });
}

TEST_F(RowSplices, MoveBetweenColumnBlocksOfWiderBuffers) {
  const Indices source_rows{1, 2, -1};
  const std::vector<std::uint8_t> wide_source = numbered(3, 50, 1);
  const std::vector<std::uint8_t> wide_target = numbered(3, 41, 9);
  // Source and target begin at every offset to the 16-byte grid that they can have.
  for (std::int64_t shift = 0; shift < 17; ++shift) {
    in_every_mode([&] {
      const DeviceView target = upload({3, 41}, wide_target);
      const std::vector<RowSplice> splices{
          {target.slice(1, 20 - shift, 21), upload({3, 50}, wide_source).slice(1, shift, 21), {}}};
      splice_rows(stream(), table_of(splices), upload({3}, source_rows));
      std::vector<std::uint8_t> expected = wide_target;
      for (std::size_t lane = 0; lane < 2; ++lane) {
        for (std::size_t column = 0; column < 21; ++column) {
          expected[lane * 41 + 20 - static_cast<std::size_t>(shift) + column] =
              wide_source[static_cast<std::size_t>(source_rows[lane]) * 50 +
                          static_cast<std::size_t>(shift) + column];
        }
      }
      EXPECT_EQ(download<std::uint8_t>(target), expected) << shift;
    });
  }
}

TEST_F(RowSplices, OfNothingAndPaddingSignalsDoNothing) {
  in_every_mode([&] {
    const DeviceView rows = upload({2}, Indices{0, 1});
    splice_rows(stream(), table_of(std::vector<RowSplice>{}), rows);
    const DeviceView target = upload({2, 4}, numbered(2, 4, 9));
    const std::vector<RowSplice> splices{{target, upload({2, 4}, numbered(2, 4, 1)), {}}};
    splice_rows(stream(), table_of(splices), output(Dtype::kI32, {0}));
    EXPECT_EQ(download<std::uint8_t>(target), numbered(2, 4, 9));
    splice_rows(stream(), table_of(splices, 3), rows);  // a captured table with room for three
    EXPECT_EQ(download<std::uint8_t>(target), numbered(2, 4, 1));
  });
}

TEST_F(RowSplices, DeclareTheirBytes) {
  in_default_mode([&] {
    const std::vector<SpliceCase> cases{
        make_case({.width = 7, .lanes = 3, .source_rows = 4, .fresh_rows = 0, .seed = 1},
                  {0, 1, 2}),
        make_case({.width = 9, .lanes = 3, .source_rows = 4, .fresh_rows = 0, .seed = 1},
                  {0, 1, 2})};
    const SpliceTable table = table_of(cases);
    EXPECT_EQ(table.widest_row_bytes, 9);
    LaunchLog log;
    device().set_launch_log(&log);
    splice_rows(stream(), table, upload({3}, Indices{0, 1, 2}));
    device().set_launch_log(nullptr);
    const std::vector<LaunchRecord> launches = log.take();
    ASSERT_EQ(launches.size(), 1u);
    EXPECT_EQ(launches[0].traffic.written_bytes, 3 * (7 + 9));
    EXPECT_EQ(launches[0].traffic.read_bytes, 3 * (7 + 9) + 3 * 4 + 2 * 64);
  });
}

TEST_F(RowSplices, OneCapturedLaunchServesWhateverBuffersTheStepBeforeUsed) {
  in_every_mode([&] {
    const DeviceView words = output(Dtype::kI64, {kSpliceEntryWords});
    const DeviceView rows = upload({2}, Indices{1, 0});
    const DeviceView target = upload({2, 20}, numbered(2, 20, 99));
    const SpliceTable captured{words.reshape({1, kSpliceEntryWords}), 20, 20};
    GraphCapture capture(stream());
    splice_rows(stream(), captured, rows);
    GraphExec exec(capture.end());
    for (const int seed : {1, 2}) {
      std::vector<std::int64_t> host(kSpliceEntryWords);
      const std::vector<std::uint8_t> source = numbered(2, 20, seed);
      const std::vector<RowSplice> splices{{target, upload({2, 20}, source), {}}};
      std::ignore = fill_splice_table(host, words, splices);
      copy(stream(), words, const_host_view(std::span<const std::int64_t>(host)));
      exec.launch(stream());
      EXPECT_EQ(download<std::uint8_t>(target), moved(source, 20, {1, 0}, source));
    }
  });
}

/// Stop buffers of any width: the rows of real lanes out of a graph's static outputs, straight to the host.
TEST_F(RowSplices, T_BO_9_RowsOfRealLanesGoToPinnedMemoryAndPaddingDoesNot) {
  in_every_mode([&] {
    const PinnedBuffer pinned(device(), 4 * 33);
    std::memset(pinned.raw(), 0xA5, 4 * 33);
    const std::vector<std::uint8_t> outputs = numbered(4, 33, 3);
    const std::vector<RowSplice> splices{
        {pinned.device_view(Dtype::kU8, {4, 33}), upload({4, 33}, outputs), {}}};
    splice_rows(stream(), table_of(splices), upload({4}, Indices{0, 1, -1, -1}));
    stream().synchronize();
    std::vector<std::uint8_t> expected(4 * 33, 0xA5);
    std::copy_n(outputs.begin(), 2 * 33, expected.begin());
    EXPECT_EQ(std::memcmp(pinned.raw(), expected.data(), expected.size()), 0);
  });
}

TEST_F(RowSplices, RefuseRowsThatDiffer) {
  in_default_mode([&] {
    const DeviceView out = output(Dtype::kF32, {2, 8});
    const auto refuses = [&](const RowSplice& splice) {
      EXPECT_THROW(std::ignore = table_of(std::vector{splice}), CheckError);
    };
    refuses({out, output(Dtype::kF32, {4, 9}), {}});
    refuses({out, output(Dtype::kI32, {4, 8}), {}});
    refuses({out, output(Dtype::kF32, {4, 8}), output(Dtype::kF32, {1, 7})});
    const std::int64_t transposed[] = {1, 2};
    refuses({DeviceView(out.raw(), Dtype::kF32, {2, 8}, transposed), out, {}});
    const SpliceTable table = table_of(std::vector<RowSplice>{{out, out, {}}, {out, out, {}}});
    EXPECT_THROW(splice_rows(stream(), table, output(Dtype::kI32, {3, 2})), CheckError);
  });
}

}  // namespace
}  // namespace rigel::kernels
