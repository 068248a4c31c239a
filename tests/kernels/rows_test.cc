#include "kernels/rows.h"

#include "tests/kernels/kernel_test.h"

namespace rigel::kernels {
namespace {

using Indices = std::vector<std::int32_t>;

/// Bytes that tell row and column apart.
std::vector<std::uint8_t> numbered(std::int64_t rows, std::int64_t columns, int seed) {
  std::vector<std::uint8_t> bytes;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      bytes.push_back(static_cast<std::uint8_t>(seed + row * 37 + column * 11));
    }
  }
  return bytes;
}

/// What a copy of rows by index must give; rows without a source are zero, or as they were in `before`.
std::vector<std::uint8_t> moved(const std::vector<std::uint8_t>& source, std::int64_t columns,
                                const Indices& indices, std::vector<std::uint8_t> before) {
  for (std::size_t row = 0; row < indices.size(); ++row) {
    for (std::int64_t column = 0; indices[row] >= 0 && column < columns; ++column) {
      before[row * static_cast<std::size_t>(columns) + static_cast<std::size_t>(column)] =
          source[static_cast<std::size_t>(indices[row] * columns + column)];
    }
  }
  return before;
}

std::int64_t size_of(const Indices& indices) {
  return static_cast<std::int64_t>(indices.size());
}

class Rows : public KernelTest {
 protected:
  void expect_gather(const Indices& indices, std::int64_t source_rows, std::int64_t columns) {
    const std::vector<std::uint8_t> source = numbered(source_rows, columns, 1);
    const std::vector<std::uint8_t> zeros(indices.size() * static_cast<std::size_t>(columns));
    const std::vector<std::uint8_t> expected = moved(source, columns, indices, zeros);
    in_every_mode([&] {
      const DeviceView out = output(Dtype::kU8, {size_of(indices), columns});
      gather_rows(stream(), out, upload({source_rows, columns}, source),
                  upload({size_of(indices)}, indices));
      EXPECT_EQ(download<std::uint8_t>(out), expected);
    });
  }
};

TEST_F(Rows, GatherMovesRowsOfAnyWidth) {
  for (const std::int64_t columns : {1, 2, 3, 4, 12, 15, 16, 17, 100, 1152, 2309, 40'000}) {
    expect_gather({3, 0, 4, 4, 1}, 5, columns);
  }
}

TEST_F(Rows, GatherGivesZerosForMissingRows) {
  for (const std::int64_t columns : {3, 20, 64}) {
    expect_gather({-1, 2, -1, 0}, 3, columns);
    expect_gather({-1, -1}, 1, columns);
  }
}

TEST_F(Rows, GatherTakesNoRowsAndManyRows) {
  expect_gather({}, 3, 16);
  Indices many;
  for (std::int32_t row = 0; row < 200; ++row) {
    many.push_back(row % 5 == 4 ? -1 : row * 3 % 7);
  }
  expect_gather(many, 7, 2304);
}

TEST_F(Rows, GatherKeepsTypeAndInnerShape) {
  in_every_mode([&] {
    const std::vector<float> source = rounded(Dtype::kBf16, random_floats(4 * 2 * 3, 1));
    const DeviceView out = output(Dtype::kBf16, {2, 2, 3});
    gather_rows(stream(), out, upload(Dtype::kBf16, {4, 2, 3}, source), upload({2}, Indices{3, 1}));
    std::vector<float> expected(source.begin() + 18, source.begin() + 24);
    expected.insert(expected.end(), source.begin() + 6, source.begin() + 12);
    EXPECT_EQ(download_floats(out), expected);
  });
}

TEST_F(Rows, GatherReadsRowsThatAreNotAligned) {
  const std::vector<std::uint8_t> source = numbered(1, 16 * 4 + 3, 2);
  in_every_mode([&] {
    const DeviceView all = upload({67}, source);
    const DeviceView out = output(Dtype::kU8, {2, 16});
    gather_rows(stream(), out, all.slice(0, 3, 64).reshape({4, 16}), upload({2}, Indices{2, 0}));
    std::vector<std::uint8_t> expected(source.begin() + 35, source.begin() + 51);
    expected.insert(expected.end(), source.begin() + 3, source.begin() + 19);
    EXPECT_EQ(download<std::uint8_t>(out), expected);
  });
}

TEST_F(Rows, SpliceMovesSeveralSignalsAtOnceAndLeavesOtherLanes) {
  const Indices source_rows{2, -1, 0, 5, -1};
  // More signals than one launch takes, of ragged widths; two have more lanes than are spliced.
  const std::vector<std::int64_t> widths{4, 16, 7, 2304, 1, 48, 36, 5};
  for (const std::int64_t extra_lanes : {0, 2}) {
    in_every_mode([&] {
      std::vector<RowSplice> splices;
      std::vector<std::vector<std::uint8_t>> expected;
      for (std::size_t signal = 0; signal < widths.size(); ++signal) {
        const std::int64_t lanes = size_of(source_rows) + extra_lanes;
        const int seed = static_cast<int>(signal) * 5;
        const std::vector<std::uint8_t> source = numbered(6, widths[signal], seed);
        const std::vector<std::uint8_t> before = numbered(lanes, widths[signal], seed + 101);
        splices.push_back(
            {upload({lanes, widths[signal]}, before), upload({6, widths[signal]}, source)});
        expected.push_back(moved(source, widths[signal], source_rows, before));
      }
      splice_rows(stream(), splices, upload({size_of(source_rows)}, source_rows));
      for (std::size_t signal = 0; signal < widths.size(); ++signal) {
        EXPECT_EQ(download<std::uint8_t>(splices[signal].target), expected[signal]) << signal;
      }
    });
  }
}

TEST_F(Rows, SpliceOfNothingDoesNothing) {
  in_every_mode([&] {
    splice_rows(stream(), {}, upload({2}, Indices{0, 1}));
    const DeviceView target = upload({2, 4}, numbered(2, 4, 9));
    const std::vector<RowSplice> splices{{target, upload({2, 4}, numbered(2, 4, 1))}};
    splice_rows(stream(), splices, output(Dtype::kI32, {0}));
    EXPECT_EQ(download<std::uint8_t>(target), numbered(2, 4, 9));
  });
}

TEST_F(Rows, RefusesRowsThatDiffer) {
  in_default_mode([&] {
    const DeviceView indices = output(Dtype::kI32, {2});
    const DeviceView out = output(Dtype::kF32, {2, 8});
    EXPECT_THROW(gather_rows(stream(), out, output(Dtype::kF32, {4, 9}), indices), CheckError);
    EXPECT_THROW(gather_rows(stream(), out, output(Dtype::kI32, {4, 8}), indices), CheckError);
    EXPECT_THROW(gather_rows(stream(), out, output(Dtype::kF32, {4, 8}), output(Dtype::kI32, {3})),
                 CheckError);
    const std::vector<RowSplice> short_target{{out.slice(0, 0, 1), output(Dtype::kF32, {4, 8})}};
    EXPECT_THROW(splice_rows(stream(), short_target, indices), CheckError);
  });
}

}  // namespace
}  // namespace rigel::kernels
