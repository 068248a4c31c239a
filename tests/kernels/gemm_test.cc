#include "kernels/gemm.h"

#include "kernels/gemm_native.h"
#include "kernels/gemm_own.h"
#include "kernels/native.h"
#if !defined(RIGEL_DEVICE_CUDA)
#include "kernels/gemm_onednn.h"
#endif
#include "simt/pool.h"
#include "tests/kernels/kernel_test.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace rigel::kernels {
namespace {

struct Problem {
  std::int64_t num_rows;     // M
  std::int64_t num_columns;  // N
  std::int64_t depth;        // K
  Dtype dtype = Dtype::kBf16;
  GemmOutput output = GemmOutput::kActivation;
  bool has_bias = false;
  std::int64_t x_gap = 0;    // elements between the rows of x
  std::int64_t out_gap = 0;  // and of out
};

std::string name_of_problem(const Problem& problem) {
  return fmt::format("M {} N {} K {} {} output {} bias {} gaps {} {}", problem.num_rows,
                     problem.num_columns, problem.depth, name_of(problem.dtype),
                     static_cast<int>(problem.output), problem.has_bias, problem.x_gap,
                     problem.out_gap);
}

/// The values of a problem as the device sees them.
struct Operands {
  std::vector<float> x;       // (M, K)
  std::vector<float> weight;  // (N, K)
  std::vector<float> bias;    // (N)
  std::vector<float> before;  // (M, N): out before the product
};

Operands make_operands(const Problem& problem) {
  const std::int64_t m = problem.num_rows;
  const std::int64_t n = problem.num_columns;
  const std::int64_t k = problem.depth;
  return {.x = rounded(problem.dtype, random_floats(m * k, 1)),
          .weight = rounded(problem.dtype, random_floats(n * k, 2)),
          .bias = random_floats(n, 3),
          .before = random_floats(m * n, 4)};
}

Dtype output_dtype(const Problem& problem) {
  return problem.output == GemmOutput::kActivation ? problem.dtype : Dtype::kF32;
}

/// (rows, columns) elements with `gap` elements of NaN after each row.
std::vector<float> with_gaps(const std::vector<float>& values, std::int64_t rows,
                             std::int64_t columns, std::int64_t gap) {
  std::vector<float> spread(static_cast<std::size_t>(rows * (columns + gap)), std::nanf(""));
  for (std::int64_t row = 0; row < rows; ++row) {
    std::copy_n(values.begin() + row * columns, columns, spread.begin() + row * (columns + gap));
  }
  return spread;
}

ConstHostView rows_view(Dtype dtype, const std::vector<std::byte>& bytes, std::int64_t depth) {
  const auto row_bytes = depth * static_cast<std::int64_t>(size_of(dtype));
  return ConstHostView(bytes.data(), dtype,
                       {static_cast<std::int64_t>(bytes.size()) / row_bytes, depth});
}

std::vector<std::byte> host_bytes(Dtype dtype, const float* values, std::int64_t num_values) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(num_values) * size_of(dtype));
  for (std::int64_t i = 0; i < num_values; ++i) {
    if (dtype == Dtype::kF32) {
      std::memcpy(bytes.data() + i * 4, &values[i], 4);
    } else {
      const bf16 narrow(values[i]);
      std::memcpy(bytes.data() + i * 2, &narrow, 2);
    }
  }
  return bytes;
}

/// Built from two pieces that meet inside a panel, the second one first.
GemmWeight build_weight(Gemm& gemm, const Problem& problem, const std::vector<float>& weight) {
  const std::int64_t k = problem.depth;
  const std::int64_t first = problem.num_columns / 3;
  const auto head = host_bytes(problem.dtype, weight.data(), first * k);
  const auto tail =
      host_bytes(problem.dtype, weight.data() + first * k, (problem.num_columns - first) * k);
  GemmWeightBuilder builder(gemm, problem.dtype, problem.num_columns, k);
  builder.add_rows(first, rows_view(problem.dtype, tail, k));
  builder.add_rows(0, rows_view(problem.dtype, head, k));
  return builder.finish();
}

/// Sums in double, and how far f32 sums of that length and the rounding of the output may be off.
struct Oracle {
  std::vector<double> value;
  std::vector<double> allowed;
};

Oracle oracle(const Problem& problem, const Operands& operands) {
  Oracle result;
  for (std::int64_t row = 0; row < problem.num_rows; ++row) {
    for (std::int64_t column = 0; column < problem.num_columns; ++column) {
      double sum = problem.has_bias ? operands.bias[column] : 0;
      double magnitude = std::abs(sum);
      for (std::int64_t k = 0; k < problem.depth; ++k) {
        const double product = static_cast<double>(operands.x[row * problem.depth + k]) *
                               operands.weight[column * problem.depth + k];
        sum += product;
        magnitude += std::abs(product);
      }
      if (problem.output == GemmOutput::kAccumulate) {
        const double before = operands.before[row * problem.num_columns + column];
        sum += before;
        magnitude += std::abs(before);
      }
      const double rounding = output_dtype(problem) == Dtype::kBf16 ? 0x1p-8 : 0x1p-24;
      const double additions = static_cast<double>(problem.depth) + 2;
      result.value.push_back(sum);
      result.allowed.push_back(additions * 0x1p-24 * magnitude + rounding * std::abs(sum));
    }
  }
  return result;
}

class GemmTest : public KernelTest {
 protected:
  /// The product of `problem` for rows [first, first + count) of x; (count, N) values of out.
  std::vector<float> multiply(Gemm& gemm, const GemmWeight& weight, const Problem& problem,
                              const Operands& operands, std::int64_t first, std::int64_t count) {
    const std::int64_t k = problem.depth;
    const std::int64_t n = problem.num_columns;
    const std::vector<float> x(operands.x.begin() + first * k,
                               operands.x.begin() + (first + count) * k);
    const std::vector<float> before(operands.before.begin() + first * n,
                                    operands.before.begin() + (first + count) * n);
    const ConstDeviceView x_all =
        upload(problem.dtype, {count, k + problem.x_gap}, with_gaps(x, count, k, problem.x_gap));
    const Shape out_shape = {count, n + problem.out_gap};
    const DeviceView out_all =
        problem.output == GemmOutput::kAccumulate
            ? upload(Dtype::kF32, out_shape, with_gaps(before, count, n, problem.out_gap))
            : output(output_dtype(problem), out_shape);
    const ConstDeviceView bias =
        problem.has_bias ? upload(Dtype::kF32, {n}, operands.bias) : ConstDeviceView{};
    gemm.run(stream(), out_all.slice(1, 0, n), x_all.slice(1, 0, k), weight, bias, problem.output);
    return without_gaps(download_floats(out_all), problem, count);
  }

  /// Prepared for all rows of `problem`.
  void prepare(Gemm& gemm, const GemmWeight& weight, const Problem& problem) {
    gemm.prepare(weight, {.max_rows = std::max<std::int64_t>(problem.num_rows, 1),
                          .output = problem.output,
                          .has_bias = problem.has_bias});
  }

  void expect_matches_oracle(const Problem& problem, GemmLibrary library) {
    const Operands operands = make_operands(problem);
    Gemm gemm(device(), {.library = library});
    const GemmWeight weight = build_weight(gemm, problem, operands.weight);
    prepare(gemm, weight, problem);
    const auto actual = multiply(gemm, weight, problem, operands, 0, problem.num_rows);
    const Oracle expected = oracle(problem, operands);
    for (std::size_t i = 0; i < expected.value.size(); ++i) {
      const double error = std::abs(actual[i] - expected.value[i]);
      ASSERT_TRUE(error <= expected.allowed[i])  // false for NaN
          << name_of_problem(problem) << " at " << i << ": " << actual[i] << " instead of "
          << expected.value[i];
    }
  }

 private:
  /// Checks that the gaps are still NaN and drops them.
  static std::vector<float> without_gaps(const std::vector<float>& values, const Problem& problem,
                                         std::int64_t rows) {
    std::vector<float> dense;
    const std::int64_t stride = problem.num_columns + problem.out_gap;
    for (std::int64_t i = 0; i < rows * stride; ++i) {
      if (i % stride < problem.num_columns) {
        dense.push_back(values[i]);
      } else {
        EXPECT_TRUE(std::isnan(values[i])) << name_of_problem(problem) << " wrote into a gap";
      }
    }
    return dense;
  }
};

/// Every type and output mode at one size, with bias and strides in turn; large sizes take a third of them each.
std::vector<Problem> problems_of_size(std::int64_t m, std::int64_t n, std::int64_t k) {
  const bool is_large = m * n * k > 500'000;
  std::vector<Problem> problems;
  std::int64_t turn = m + n + k;
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF32}) {
    for (const GemmOutput output :
         {GemmOutput::kActivation, GemmOutput::kFloat, GemmOutput::kAccumulate}) {
      ++turn;
      if (is_large && turn % 3 != 0) {
        continue;
      }
      problems.push_back({.num_rows = m,
                          .num_columns = n,
                          .depth = k,
                          .dtype = dtype,
                          .output = output,
                          .has_bias = turn % 2 == 0,
                          .x_gap = turn % 3,
                          .out_gap = turn % 5});
    }
  }
  return problems;
}

/// The device text of products; "all" leaves them native.
std::vector<KernelMode> text_modes() {
  std::vector<KernelMode> modes;
  for (KernelMode mode : kernel_modes()) {
    if (mode.options.device_texts == "all") {
      mode.options.device_texts = "gemm";
      mode.name = "gemm " + mode.name;
      modes.push_back(mode);
    }
  }
  return modes;
}

#if defined(__SANITIZE_THREAD__)
// One of each kind: the detector makes the rest take minutes.
constexpr std::int64_t kOracleRows[] = {0, 1, 6, 65};
constexpr std::int64_t kOracleColumns[] = {1, 17, 96};
constexpr std::int64_t kOracleDepths[] = {1, 7, 96};
constexpr std::int64_t kTextRows[] = {1, 65};
constexpr std::int64_t kTextColumns[] = {17, 66};
constexpr std::int64_t kTextDepths[] = {33, 96};
constexpr std::int64_t kOneDnnRows[] = {1, 65};
constexpr std::int64_t kOneDnnColumns[] = {17, 320};
constexpr std::int64_t kOneDnnDepths[] = {8, 96};
constexpr std::int64_t kSummedRowsStep = 5;
#else
constexpr std::int64_t kOracleRows[] = {0, 1, 2, 5, 6, 7, 64, 65};
constexpr std::int64_t kOracleColumns[] = {1, 15, 16, 17, 509};
constexpr std::int64_t kOracleDepths[] = {1, 7, 8, 96, 576};
constexpr std::int64_t kTextRows[] = {1, 9, 17, 65};
constexpr std::int64_t kTextColumns[] = {1, 17, 66};
constexpr std::int64_t kTextDepths[] = {1, 31, 33, 96};
constexpr std::int64_t kOneDnnRows[] = {1, 2, 7, 65};
constexpr std::int64_t kOneDnnColumns[] = {1, 17, 64, 320};
constexpr std::int64_t kOneDnnDepths[] = {1, 8, 96};
constexpr std::int64_t kSummedRowsStep = 1;
#endif

TEST_F(GemmTest, MatchesTheDoublePrecisionOracleAtOddSizes) {
  in_default_mode([&] {
    for (const std::int64_t m : kOracleRows) {
      for (const std::int64_t n : kOracleColumns) {
        for (const std::int64_t k : kOracleDepths) {
          for (const Problem& problem : problems_of_size(m, n, k)) {
            ASSERT_NO_FATAL_FAILURE(expect_matches_oracle(problem, GemmLibrary::kAuto));
          }
        }
      }
    }
  });
}

TEST_F(GemmTest, TheDeviceTextMatchesTheOracleInEveryOrder) {
  for (const KernelMode& mode : text_modes()) {
    run_in(mode, [&] {
      for (const std::int64_t m : kTextRows) {
        for (const std::int64_t n : kTextColumns) {
          for (const std::int64_t k : kTextDepths) {
            for (const Problem& problem : problems_of_size(m, n, k)) {
              ASSERT_NO_FATAL_FAILURE(expect_matches_oracle(problem, GemmLibrary::kOwn));
            }
          }
        }
      }
    });
  }
}

TEST_F(GemmTest, TheDeviceTextGivesTheBitsOfTheNativeVariant) {
  const Problem problem = {.num_rows = 21, .num_columns = 70, .depth = 100, .has_bias = true};
  const Operands operands = make_operands(problem);
  std::vector<std::vector<float>> results;
  std::vector<KernelMode> modes = text_modes();
  modes.push_back(kernel_modes().front());
  for (const KernelMode& mode : modes) {
    run_in(mode, [&] {
      Gemm gemm(device(), {.library = GemmLibrary::kOwn});
      const GemmWeight weight = build_weight(gemm, problem, operands.weight);
      prepare(gemm, weight, problem);
      results.push_back(multiply(gemm, weight, problem, operands, 0, problem.num_rows));
    });
    EXPECT_EQ(results.back(), results.front()) << mode.name;
  }
}

TEST_F(GemmTest, ABiasAddedAfterwardsGivesWhatTheProductWithBiasGives) {
  in_every_mode([&] {
    for (Problem problem : problems_of_size(5, 300, 7)) {
      problem.has_bias = true;
      const Operands operands = make_operands(problem);
      Gemm gemm(device(), {.library = GemmLibrary::kOwn});
      const GemmWeight weight = build_weight(gemm, problem, operands.weight);
      prepare(gemm, weight, problem);
      const auto expected = multiply(gemm, weight, problem, operands, 0, 5);

      Problem sums_problem = problem;
      sums_problem.output = GemmOutput::kFloat;
      sums_problem.has_bias = false;
      const auto sums = multiply(gemm, weight, sums_problem, operands, 0, 5);
      const DeviceView out = problem.output == GemmOutput::kAccumulate
                                 ? upload(Dtype::kF32, {5, 300}, operands.before)
                                 : output(output_dtype(problem), {5, 300});
      gemm_add_bias(stream(), {.x = upload(Dtype::kF32, {5, 300}, sums).raw(),
                               .bias = upload(Dtype::kF32, {300}, operands.bias).data<float>(),
                               .out = out.raw(),
                               .x_row_stride = 300,
                               .out_row_stride = 300,
                               .num_rows = 5,
                               .num_columns = 300,
                               .depth = 7,
                               .output = problem.output,
                               .is_bf16 = problem.dtype == Dtype::kBf16});
      EXPECT_EQ(download_floats(out), expected) << name_of_problem(problem);
    }
  });
}

TEST_F(GemmTest, ARowHasTheSameBitsAtAnyNumberOfRowsAndAnyPlace) {
  in_default_mode([&] {
    for (const Problem& problem : problems_of_size(65, 509, 576)) {
      const Operands operands = make_operands(problem);
      Gemm gemm(device(), {});
      const GemmWeight weight = build_weight(gemm, problem, operands.weight);
      prepare(gemm, weight, problem);
      const auto whole = multiply(gemm, weight, problem, operands, 0, problem.num_rows);
      for (const std::int64_t count : {1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 25, 64}) {
        const std::int64_t first = 65 - count - count % 2;
        if (first < 0) {
          continue;
        }
        const auto part = multiply(gemm, weight, problem, operands, first, count);
        const std::vector<float> same(whole.begin() + first * problem.num_columns,
                                      whole.begin() + (first + count) * problem.num_columns);
        ASSERT_EQ(part, same) << name_of_problem(problem) << " rows " << count;
      }
    }
  });
}

TEST_F(GemmTest, AnyNumberOfThreadsGivesTheSameBits) {
  for (const std::int64_t m : {1, 3, 64, 200}) {
    Problem problem = {.num_rows = m, .num_columns = 509, .depth = 576, .has_bias = true};
    const Operands operands = make_operands(problem);
    std::vector<std::vector<float>> results;
    for (const int threads : {1, 2, 3}) {
      KernelMode mode = kernel_modes().front();
      mode.name = fmt::format("gemm with {} threads", threads);
      mode.options.num_threads = threads;
      run_in(mode, [&] {
        Gemm gemm(device(), {});
        const GemmWeight weight = build_weight(gemm, problem, operands.weight);
        prepare(gemm, weight, problem);
        results.push_back(multiply(gemm, weight, problem, operands, 0, m));
      });
    }
    EXPECT_EQ(results[1], results[0]) << m;
    EXPECT_EQ(results[2], results[0]) << m;
  }
}

#if !defined(RIGEL_DEVICE_CUDA)

/// The order that every own implementation promises: one f32 accumulator, over k in order, fused.
std::vector<float> sums_in_order(const Problem& problem, const Operands& operands) {
  std::vector<float> sums;
  for (std::int64_t row = 0; row < problem.num_rows; ++row) {
    for (std::int64_t column = 0; column < problem.num_columns; ++column) {
      float sum = 0;
      for (std::int64_t k = 0; k < problem.depth; ++k) {
        sum = std::fmaf(operands.weight[column * problem.depth + k],
                        operands.x[row * problem.depth + k], sum);
      }
      sums.push_back(sum);
    }
  }
  return sums;
}

/// Calls one native level on packed weights made here, without device and builder.
std::vector<float> call_native(void (*native)(simt::Pool&, const GemmParams&),
                               const Problem& problem, const Operands& operands) {
  const std::int64_t n = problem.num_columns;
  const std::int64_t k = problem.depth;
  const bool is_bf16 = problem.dtype == Dtype::kBf16;
  std::vector<float> packed(static_cast<std::size_t>((n + 15) / 16 * 16 * k));
  for (std::int64_t column = 0; column < n; ++column) {
    // bf16: 0 8 1 9 2 10 ...
    const std::int64_t in_panel = column % 16;
    const std::int64_t slot = is_bf16 ? in_panel % 8 * 2 + in_panel / 8 : in_panel;
    for (std::int64_t i = 0; i < k; ++i) {
      packed[(column / 16 * k + i) * 16 + slot] = operands.weight[column * k + i];
    }
  }
  const auto weight = host_bytes(problem.dtype, packed.data(), std::ssize(packed));
  const auto x = host_bytes(problem.dtype, operands.x.data(), std::ssize(operands.x));
  std::vector<float> widened(operands.x.size());
  std::vector<float> out(static_cast<std::size_t>(problem.num_rows * n), std::nanf(""));
  simt::Pool pool(2);
  native(pool, {.x = x.data(),
                .weight = weight.data(),
                .bias = nullptr,
                .out = out.data(),
                .widened = widened.data(),
                .x_row_stride = k,
                .out_row_stride = n,
                .widened_row_stride = k,
                .num_rows = static_cast<std::int32_t>(problem.num_rows),
                .num_columns = static_cast<std::int32_t>(n),
                .depth = static_cast<std::int32_t>(k),
                .output = GemmOutput::kFloat,
                .is_bf16 = is_bf16});
  return out;
}

void expect_sums_in_order(void (*native)(simt::Pool&, const GemmParams&)) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF32}) {
    for (std::int64_t m = 1; m <= 26; m += kSummedRowsStep) {
      const Problem problem = {.num_rows = m, .num_columns = 163, .depth = 577, .dtype = dtype};
      const Operands operands = make_operands(problem);
      ASSERT_EQ(call_native(native, problem, operands), sums_in_order(problem, operands))
          << name_of_problem(problem);
    }
  }
}

TEST(GemmOneDnn, ServesByItselfOnlyWithImplementationsThatKeepBits) {
  EXPECT_TRUE(onednn_keeps_bits("brg:avx512_core"));
  EXPECT_TRUE(onednn_keeps_bits("brg:avx512_core_bf16"));
  EXPECT_TRUE(onednn_keeps_bits("brg:avx512_core_bf16_amx_bf16"));
  EXPECT_FALSE(onednn_keeps_bits("brg:avx2"));
  EXPECT_FALSE(onednn_keeps_bits("gemm:jit"));
  EXPECT_FALSE(onednn_keeps_bits("jit:avx512_core"));
  EXPECT_FALSE(onednn_keeps_bits("ref:any"));
  EXPECT_FALSE(onednn_keeps_bits(""));
}

TEST(GemmOneDnn, AnyNumberOfRowsIsASumOfPreparedOnes) {
  for (const std::int64_t max_rows : {1, 5, 17, 64, 512}) {
    for (std::int64_t rows = 1; rows <= max_rows; ++rows) {
      std::int64_t covered = 0;
      while (covered < rows) {
        const std::int64_t count = onednn_next_rows(rows - covered, max_rows);
        ASSERT_GE(count, 1);
        ASSERT_LE(count, max_rows);
        ASSERT_TRUE(std::ranges::count(onednn_row_counts(), count) == 1) << count;
        covered += count;
      }
      ASSERT_EQ(covered, rows);
    }
  }
}

// Here oneDNN may lack the implementations that keep bits, so its arithmetic is tested with whatever it has; bf16, which it
// refuses below AVX512, comes from our own code through the same calls.
TEST_F(GemmTest, OneDnnMatchesTheOracleWhenAskedFor) {
  for (const int threads : {1, 2, 3}) {
    KernelMode mode = kernel_modes().front();
    mode.name = fmt::format("gemm with {} threads", threads);
    mode.options.num_threads = threads;
    run_in(mode, [&] {
      for (const std::int64_t m : kOneDnnRows) {
        for (const std::int64_t n : kOneDnnColumns) {
          for (const std::int64_t k : kOneDnnDepths) {
            for (const Problem& problem : problems_of_size(m, n, k)) {
              ASSERT_NO_FATAL_FAILURE(expect_matches_oracle(problem, GemmLibrary::kOneDnn));
            }
          }
        }
      }
    });
  }
}

TEST_F(GemmTest, OneDnnPacksFloatsItsOwnWayWhenAskedFor) {
  in_default_mode([&] {
    const Problem problem = {.num_rows = 1, .num_columns = 128, .depth = 64, .dtype = Dtype::kF32};
    Gemm gemm(device(), {.library = GemmLibrary::kOneDnn});
    const GemmWeight weight = build_weight(gemm, problem, make_operands(problem).weight);
    EXPECT_EQ(weight.layout(), GemmLayout::kOneDnn);
    Gemm own(device(), {.library = GemmLibrary::kOwn});
    EXPECT_THROW(own.prepare(weight, {.max_rows = 1}), CheckError);
  });
}

TEST(GemmNative, TheAvx2LevelSumsInOrder) {
  expect_sums_in_order(&native_v3::gemm);
}

TEST(GemmNative, TheAvx512LevelSumsInOrder) {
  if (native_level() != NativeLevel::kV4) {
    GTEST_SKIP() << "this processor has no AVX512";
  }
  expect_sums_in_order(&native_v4::gemm);
}

#endif

TEST(GemmPlan, ChoosesTheFlatTileForFewRowsAndCoversTheOutput) {
  GemmParams params = {.num_rows = 1, .num_columns = 65, .depth = 8};
  EXPECT_EQ(gemm_plan(params).grid.x, 2U);
  EXPECT_EQ(gemm_plan(params).grid.y, 1U);
  params.num_rows = 65;
  EXPECT_EQ(gemm_plan(params).grid.y, 2U);
}

TEST(GemmPlan, CountsWeightsOnceAndReadsTheOutputOnlyToAccumulate) {
  GemmParams params = {.num_rows = 2,
                       .num_columns = 3,
                       .depth = 5,
                       .output = GemmOutput::kAccumulate,
                       .is_bf16 = true};
  EXPECT_EQ(gemm_traffic(params).read_bytes, (2 + 3) * 5 * 2 + 2 * 3 * 4);
  EXPECT_EQ(gemm_traffic(params).written_bytes, 2 * 3 * 4);
  EXPECT_EQ(gemm_traffic(params).flops, 2 * 2 * 3 * 5);
  params.output = GemmOutput::kActivation;
  EXPECT_EQ(gemm_traffic(params).read_bytes, (2 + 3) * 5 * 2);
  EXPECT_EQ(gemm_traffic(params).written_bytes, 2 * 3 * 2);
}

TEST_F(GemmTest, RefusesMismatchedOperands) {
  in_default_mode([&] {
    const Problem problem = {.num_rows = 2, .num_columns = 4, .depth = 8};
    const Operands operands = make_operands(problem);
    Gemm gemm(device(), {.library = GemmLibrary::kOwn});
    const GemmWeight weight = build_weight(gemm, problem, operands.weight);
    prepare(gemm, weight, problem);
    const DeviceView out = output(Dtype::kBf16, {2, 4});
    const ConstDeviceView x = upload(Dtype::kBf16, {2, 8}, operands.x);
    const auto run = [&](DeviceView to, ConstDeviceView from, GemmOutput mode) {
      gemm.run(stream(), to, from, weight, {}, mode);
    };
    EXPECT_THROW(run(out, x.slice(1, 0, 7), GemmOutput::kActivation), CheckError);
    EXPECT_THROW(run(out.slice(0, 0, 1), x, GemmOutput::kActivation), CheckError);
    EXPECT_THROW(run(out, x, GemmOutput::kFloat), CheckError);
    const ConstDeviceView many = upload(Dtype::kBf16, {400, 8}, std::vector<float>(3200));
    EXPECT_THROW(run(output(Dtype::kBf16, {400, 4}), many, GemmOutput::kActivation), CheckError);
    EXPECT_NO_THROW(run(out, x, GemmOutput::kActivation));
  });
}

TEST_F(GemmTest, TheBuilderRefusesRowsThatDoNotFit) {
  in_default_mode([&] {
    Gemm gemm(device(), {.library = GemmLibrary::kOwn});
    GemmWeightBuilder builder(gemm, Dtype::kBf16, 4, 8);
    const std::vector<float> values(24);
    const auto bytes = host_bytes(Dtype::kBf16, values.data(), 24);
    const ConstHostView rows = rows_view(Dtype::kBf16, bytes, 8);
    EXPECT_THROW(builder.add_rows(2, rows), CheckError);
    EXPECT_THROW(builder.add_rows(-1, rows), CheckError);
    EXPECT_THROW(builder.add_rows(0, rows.reshape({4, 6})), CheckError);
    builder.add_rows(1, rows);
    EXPECT_EQ(builder.finish().num_rows(), 4);
    EXPECT_THROW(builder.add_rows(0, rows), CheckError);
  });
}

TEST_F(GemmTest, ALibraryOfTheOtherDeviceIsRefusedByName) {
  in_default_mode([&] {
    const GemmLibrary other = device().is_cuda() ? GemmLibrary::kOneDnn : GemmLibrary::kCublasLt;
    EXPECT_THROW(Gemm(device(), {.library = other}), std::invalid_argument);
  });
}

}  // namespace
}  // namespace rigel::kernels
