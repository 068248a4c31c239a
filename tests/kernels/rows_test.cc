#include "kernels/rows.h"

#include "tests/kernels/kernel_test.h"
#include "tests/kernels/rows_case.h"

#include <algorithm>

namespace rigel::kernels {
namespace {

class Rows : public KernelTest {
 protected:
  void expect_gather(const Indices& indices, std::int64_t source_rows, std::int64_t columns) {
    const std::vector<std::uint8_t> source = numbered(source_rows, columns, 1);
    const std::vector<std::uint8_t> zeros(indices.size() * static_cast<std::size_t>(columns));
    Indices existing = indices;
    std::ranges::replace_if(
        existing, [&](std::int32_t row) { return row >= source_rows; }, -1);
    const std::vector<std::uint8_t> expected = moved(source, columns, existing, zeros);
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
    expect_gather({2, 3, 1 << 30}, 3, columns);  // rows that the source does not have
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

TEST_F(Rows, GatherRefusesRowsThatDiffer) {
  in_default_mode([&] {
    const DeviceView indices = output(Dtype::kI32, {2});
    const DeviceView out = output(Dtype::kF32, {2, 8});
    EXPECT_THROW(gather_rows(stream(), out, output(Dtype::kF32, {4, 9}), indices), CheckError);
    EXPECT_THROW(gather_rows(stream(), out, output(Dtype::kI32, {4, 8}), indices), CheckError);
    EXPECT_THROW(gather_rows(stream(), out, output(Dtype::kF32, {4, 8}), output(Dtype::kI32, {3})),
                 CheckError);
  });
}

}  // namespace
}  // namespace rigel::kernels
