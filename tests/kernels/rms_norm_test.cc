#include "kernels/rms_norm.h"

#include "tests/kernels/kernel_test.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rigel::kernels {
namespace {

constexpr float kEpsilon = 1e-5F;
// One rounding to bf16, or the last bits of f32 sums.
constexpr Tolerance kTolerance[] = {{.relative = 0x1.01p-8}, {.relative = 2e-6}};

Tolerance tolerance_of(Dtype dtype) {
  return kTolerance[dtype == Dtype::kBf16 ? 0 : 1];
}

/// The norm of one row, in double precision.
std::vector<double> norm_of(const std::vector<double>& x, const float* weight) {
  double squares = 0;
  for (const double value : x) {
    squares += value * value;
  }
  const double scale =
      1.0 / std::sqrt(squares / static_cast<double>(x.size()) + static_cast<double>(kEpsilon));
  std::vector<double> result;
  for (std::size_t column = 0; column < x.size(); ++column) {
    result.push_back(x[column] * scale * static_cast<double>(weight[column]));
  }
  return result;
}

std::vector<double> norm_rows(const std::vector<double>& x, std::size_t columns,
                              const std::vector<float>& weight) {
  std::vector<double> result;
  for (std::size_t start = 0; start < x.size(); start += columns) {
    const auto row = x.begin() + static_cast<std::ptrdiff_t>(start);
    const std::vector<double> normed =
        norm_of({row, row + static_cast<std::ptrdiff_t>(columns)}, weight.data());
    result.insert(result.end(), normed.begin(), normed.end());
  }
  return result;
}

std::vector<double> widened(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

class RmsNorm : public KernelTest {
 protected:
  void expect_norm(Dtype dtype, std::int64_t rows, std::int64_t columns) {
    const std::vector<float> x = random_floats(rows * columns, 1, 3.0F);
    const std::vector<float> weight = random_floats(columns, 2);
    const std::vector<double> expected =
        norm_rows(widened(x), static_cast<std::size_t>(columns), weight);
    in_every_mode([&] {
      const DeviceView out = output(dtype, {rows, columns});
      rms_norm(stream(), out, upload({rows, columns}, x), upload({columns}, weight), kEpsilon);
      expect_close(download_floats(out), expected, tolerance_of(dtype));
    });
  }

  void expect_add_norm(Dtype dtype, std::int64_t rows, std::int64_t columns) {
    const std::vector<float> residual = random_floats(rows * columns, 1, 3.0F);
    const std::vector<float> delta = rounded(dtype, random_floats(rows * columns, 5));
    const std::vector<float> weight = random_floats(columns, 2);
    std::vector<float> sum(residual.size());
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] = residual[i] + delta[i];
    }
    const std::vector<double> expected =
        norm_rows(widened(sum), static_cast<std::size_t>(columns), weight);
    in_every_mode([&] {
      const DeviceView out = output(dtype, {rows, columns});
      const DeviceView updated = upload({rows, columns}, residual);
      add_rms_norm(stream(), out, updated, upload(dtype, {rows, columns}, delta),
                   upload({columns}, weight), kEpsilon);
      EXPECT_EQ(download<float>(updated), sum);
      expect_close(download_floats(out), expected, tolerance_of(dtype));
    });
  }
};

TEST_F(RmsNorm, MatchesTheDoublePrecisionOracleAtOddSizes) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF32}) {
    for (const std::int64_t columns : {1, 7, 8, 31, 33, 40, 100, 576, 577, 1032, 2048, 4096}) {
      expect_norm(dtype, 3, columns);
    }
  }
}

TEST_F(RmsNorm, TakesNoRows) {
  expect_norm(Dtype::kBf16, 0, 64);
}

TEST_F(RmsNorm, CoversManyRowsOnSeveralThreads) {
  expect_norm(Dtype::kBf16, 203, 576);
}

TEST_F(RmsNorm, AddsTheDeltaFirstWhenFused) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF32}) {
    for (const std::int64_t columns : {1, 7, 36, 576, 577, 1544}) {
      expect_add_norm(dtype, 3, columns);
    }
    expect_add_norm(dtype, 0, 64);
    expect_add_norm(dtype, 120, 576);
  }
}

TEST_F(RmsNorm, GivesZerosForARowOfZeros) {
  in_every_mode([&] {
    const DeviceView out = output(Dtype::kBf16, {2, 24});
    rms_norm(stream(), out, upload({2, 24}, std::vector<float>(48, 0.0F)),
             upload({24}, std::vector<float>(24, 1.0F)), kEpsilon);
    EXPECT_EQ(download_floats(out), std::vector<float>(48, 0.0F));
  });
}

TEST_F(RmsNorm, KeepsANanInItsOwnRow) {
  std::vector<float> x = random_floats(3 * 40, 1);
  x[45] = std::numeric_limits<float>::quiet_NaN();
  in_every_mode([&] {
    const DeviceView out = output(Dtype::kF32, {3, 40});
    rms_norm(stream(), out, upload({3, 40}, x), upload({40}, random_floats(40, 2)), kEpsilon);
    const std::vector<float> values = download_floats(out);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(std::isnan(values[i]), i >= 40 && i < 80) << i;
    }
  });
}

TEST_F(RmsNorm, GivesARowTheSameBitsAloneAndAnywhereInABatch) {
  for (const std::int64_t columns : {100, 576, 1544}) {
    const std::vector<float> row = random_floats(columns, 9);
    const std::vector<float> weight = random_floats(columns, 2);
    in_every_mode([&] {
      const DeviceView alone = output(Dtype::kBf16, {1, columns});
      const DeviceView weights = upload({columns}, weight);
      rms_norm(stream(), alone, upload({1, columns}, row), weights, kEpsilon);
      const std::vector<std::byte> expected = download_bits(alone);
      for (const std::int64_t place : {0, 4, 88}) {
        std::vector<float> batch = random_floats(89 * columns, 10);
        std::copy(row.begin(), row.end(), batch.begin() + place * columns);
        const DeviceView out = output(Dtype::kBf16, {89, columns});
        rms_norm(stream(), out, upload({89, columns}, batch), weights, kEpsilon);
        EXPECT_EQ(download_bits(out.slice(0, place, 1)), expected);
      }
    });
  }
}

TEST_F(RmsNorm, NormalisesHeadsOfAWiderRowInPlaceAndTouchesNothingElse) {
  constexpr std::int64_t kTokens = 5;
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF32}) {
    for (const std::int64_t size : {1, 12, 64, 72, 128, 256}) {
      for (const std::int64_t heads : {1, 3}) {
        const std::int64_t width = (heads + 2) * size;  // other columns before and behind
        const std::vector<float> rows = rounded(dtype, random_floats(kTokens * width, 4, 2.0F));
        const std::vector<float> weight = random_floats(size, 2);
        std::vector<double> expected = widened(rows);
        for (std::int64_t token = 0; token < kTokens; ++token) {
          for (std::int64_t head = 1; head <= heads; ++head) {
            const auto start = expected.begin() + token * width + head * size;
            const std::vector<double> normed = norm_of({start, start + size}, weight.data());
            std::copy(normed.begin(), normed.end(), start);
          }
        }
        in_every_mode([&] {
          const DeviceView all = upload(dtype, {kTokens, heads + 2, size}, rows);
          head_rms_norm(stream(), all.slice(1, 1, heads), upload({size}, weight), kEpsilon);
          expect_close(download_floats(all), expected, tolerance_of(dtype));
        });
      }
    }
  }
}

TEST_F(RmsNorm, RefusesShapesThatDoNotAgree) {
  in_default_mode([&] {
    const DeviceView out = output(Dtype::kBf16, {2, 8});
    const DeviceView x = output(Dtype::kF32, {2, 8});
    EXPECT_THROW(rms_norm(stream(), out, x, output(Dtype::kF32, {9}), kEpsilon), CheckError);
    EXPECT_THROW(rms_norm(stream(), out, x, output(Dtype::kBf16, {8}), kEpsilon), CheckError);
    EXPECT_THROW(
        rms_norm(stream(), output(Dtype::kI32, {2, 8}), x, output(Dtype::kF32, {8}), kEpsilon),
        CheckError);
    EXPECT_THROW(add_rms_norm(stream(), out, x, output(Dtype::kF32, {2, 8}),
                              output(Dtype::kF32, {8}), kEpsilon),
                 CheckError);
  });
}

}  // namespace
}  // namespace rigel::kernels
