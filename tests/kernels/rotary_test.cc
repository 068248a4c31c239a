#include "kernels/rotary.h"

#include "tests/kernels/kernel_test.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>

namespace rigel::kernels {
namespace {

struct RotaryCase {
  Dtype dtype = Dtype::kBf16;
  int num_heads = 9;
  int num_kv_heads = 3;
  int head_size = 64;
  int rotary_dim = 64;
  bool interleaved = false;
  int gap = 0;  // elements between the rows of qkv

  [[nodiscard]] int width() const { return (num_heads + 2 * num_kv_heads) * head_size; }
};

std::string name_of_case(const RotaryCase& problem) {
  return fmt::format("{} H {} G {} D {} R {} {} gap {}", name_of(problem.dtype), problem.num_heads,
                     problem.num_kv_heads, problem.head_size, problem.rotary_dim,
                     problem.interleaved ? "interleaved" : "halves", problem.gap);
}

struct Token {
  int row;
  int position;
};

// Two rows with scattered pages, a token alone on a page, page edges, and padding.
const std::vector<Token> kTokens = {{0, 0},  {-1, -1}, {1, 15}, {1, 16}, {1, 17},
                                    {0, 31}, {0, 32},  {-1, 5}, {2, 40}};
constexpr int kPageSize = 16;
constexpr int kMaxPages = 4;
constexpr int kNumPages = 14;
const std::vector<std::int32_t> kPageTable = {7, 3, 12, 0, 5, 9, 0, 0, 2, 11, 6, 0};

/// One head rotated by the angles as they are on the device, in double precision.
std::vector<double> rotate_head(const RotaryCase& problem, const float* head, const float* angles) {
  std::vector<double> out(head, head + problem.head_size);
  for (int pair = 0; pair < problem.rotary_dim / 2; ++pair) {
    const int low = problem.interleaved ? 2 * pair : pair;
    const int high = problem.interleaved ? 2 * pair + 1 : pair + problem.rotary_dim / 2;
    const double a = static_cast<double>(head[low]);
    const double b = static_cast<double>(head[high]);
    const double cosine = static_cast<double>(angles[2 * pair]);
    const double sine = static_cast<double>(angles[2 * pair + 1]);
    out[static_cast<std::size_t>(low)] = a * cosine - b * sine;
    out[static_cast<std::size_t>(high)] = a * sine + b * cosine;
  }
  return out;
}

struct Expected {
  std::vector<double> qkv;    // (T, width + gap)
  std::vector<double> cache;  // (P, 2, G, S, D)
};

std::size_t cache_offset(const RotaryCase& problem, const Token& token, int part, int kv_head) {
  const int page =
      kPageTable[static_cast<std::size_t>(token.row * kMaxPages + token.position / kPageSize)];
  return static_cast<std::size_t>(
      (((page * 2 + part) * problem.num_kv_heads + kv_head) * kPageSize +
       token.position % kPageSize) *
      problem.head_size);
}

/// What qkv and an initially NaN cache hold afterwards.
Expected append_oracle(const RotaryCase& problem, const std::vector<float>& qkv,
                       const std::vector<float>& angles) {
  Expected expected;
  expected.qkv.assign(qkv.begin(), qkv.end());
  expected.cache.assign(static_cast<std::size_t>(kNumPages * 2 * problem.num_kv_heads * kPageSize *
                                                 problem.head_size),
                        std::numeric_limits<double>::quiet_NaN());
  const auto place = [&](std::vector<double>& to, std::size_t at, const std::vector<double>& from) {
    std::copy(from.begin(), from.end(), to.begin() + static_cast<std::ptrdiff_t>(at));
  };
  for (std::size_t t = 0; t < kTokens.size(); ++t) {
    if (kTokens[t].row < 0) {
      continue;
    }
    const float* angle = angles.data() + t * static_cast<std::size_t>(problem.rotary_dim);
    const std::size_t row = t * static_cast<std::size_t>(problem.width() + problem.gap);
    for (int head = 0; head < problem.num_heads + 2 * problem.num_kv_heads; ++head) {
      const std::size_t at = row + static_cast<std::size_t>(head * problem.head_size);
      const int line = head - problem.num_heads;
      if (line < 0) {
        place(expected.qkv, at, rotate_head(problem, qkv.data() + at, angle));
      } else if (line < problem.num_kv_heads) {
        place(expected.cache, cache_offset(problem, kTokens[t], 0, line),
              rotate_head(problem, qkv.data() + at, angle));
      } else {
        place(expected.cache, cache_offset(problem, kTokens[t], 1, line - problem.num_kv_heads),
              {qkv.data() + at, qkv.data() + at + problem.head_size});
      }
    }
  }
  return expected;
}

Tolerance rotary_tolerance(Dtype dtype) {
  return dtype == Dtype::kBf16 ? Tolerance{.relative = 0x1p-8, .absolute = 1e-6}
                               : Tolerance{.relative = 1e-6, .absolute = 1e-6};
}

class RotaryTest : public KernelTest {
 protected:
  struct Result {
    std::vector<std::byte> qkv;
    std::vector<std::byte> cache;
  };

  void check_append(const RotaryCase& problem) {
    SCOPED_TRACE(name_of_case(problem));
    const auto num_tokens = static_cast<std::int64_t>(kTokens.size());
    const std::int64_t stride = problem.width() + problem.gap;
    std::vector<float> qkv = rounded(problem.dtype, random_floats(num_tokens * stride, 5));
    const std::vector<float> angles = random_floats(num_tokens * problem.rotary_dim, 6);
    for (std::size_t i = 0; i < qkv.size(); ++i) {
      const bool is_gap = static_cast<int>(i) % stride >= problem.width();
      const bool is_padding = kTokens[i / static_cast<std::size_t>(stride)].row < 0;
      qkv[i] = is_gap || is_padding ? kNan : qkv[i];
    }
    const Expected expected = append_oracle(problem, qkv, angles);
    std::vector<Result> results;
    in_every_mode([&] { results.push_back(append(problem, qkv, angles, expected)); });
    for (const Result& result : results) {  // native variant and text agree in every bit
      EXPECT_EQ(result.qkv, results.front().qkv);
      EXPECT_EQ(result.cache, results.front().cache);
    }
  }

 private:
  Result append(const RotaryCase& problem, const std::vector<float>& qkv,
                const std::vector<float>& angles, const Expected& expected) {
    const auto num_tokens = static_cast<std::int64_t>(kTokens.size());
    std::vector<std::int32_t> rows;
    std::vector<std::int32_t> positions;
    for (const Token& token : kTokens) {
      rows.push_back(token.row);
      positions.push_back(token.position);
    }
    const DeviceView matrix =
        upload(problem.dtype, {num_tokens, problem.width() + problem.gap}, qkv);
    const DeviceView cache =
        output(problem.dtype, {kNumPages, 2, problem.num_kv_heads, kPageSize, problem.head_size});
    rotary_append_kv(stream(), {.qkv = matrix.slice(1, 0, problem.width()),
                                .angles = upload({num_tokens, problem.rotary_dim / 2, 2}, angles),
                                .token_rows = upload({num_tokens}, rows),
                                .positions = upload({num_tokens}, positions),
                                .page_table = upload({3, kMaxPages}, kPageTable),
                                .kv_layer = cache,
                                .num_heads = problem.num_heads,
                                .interleaved = problem.interleaved});
    expect_close(download_floats(matrix), expected.qkv, rotary_tolerance(problem.dtype));
    expect_close(download_floats(cache), expected.cache, rotary_tolerance(problem.dtype));
    return {download_bits(matrix), download_bits(cache)};
  }
};

TEST_F(RotaryTest, AppendMatchesTheOracleForBothPairingsAtEveryHeadSize) {
  for (const bool interleaved : {false, true}) {
    for (const int head_size : {8, 16, 24, 40, 64, 80, 96, 128, 136, 256}) {
      check_append({.dtype = head_size % 16 == 0 ? Dtype::kBf16 : Dtype::kF32,
                    .head_size = head_size,
                    .rotary_dim = head_size,
                    .interleaved = interleaved});
    }
  }
}

TEST_F(RotaryTest, ElementsBehindTheRotaryDimensionPassThrough) {
  for (const bool interleaved : {false, true}) {
    for (const int rotary_dim : {2, 10, 16, 20, 32, 78}) {
      check_append({.num_heads = 4,
                    .num_kv_heads = 2,
                    .head_size = 80,
                    .rotary_dim = rotary_dim,
                    .interleaved = interleaved});
    }
  }
}

TEST_F(RotaryTest, RowsMayLieApartAndBeMisaligned) {
  for (const int gap : {8, 3}) {
    check_append({.dtype = Dtype::kBf16, .gap = gap});
    check_append(
        {.dtype = Dtype::kF32, .num_heads = 1, .num_kv_heads = 1, .interleaved = true, .gap = gap});
  }
}

TEST_F(RotaryTest, WithoutACacheAllHeadsRotateInPlace) {
  const RotaryCase problem{.num_heads = 5, .num_kv_heads = 0, .head_size = 40, .rotary_dim = 24};
  constexpr int kNumTokens = 7;
  const std::vector<float> heads =
      rounded(problem.dtype, random_floats(kNumTokens * problem.width(), 7));
  const std::vector<float> angles = random_floats(kNumTokens * problem.rotary_dim, 8);
  std::vector<double> expected;
  for (int i = 0; i < kNumTokens * problem.num_heads; ++i) {
    const int token = i / problem.num_heads;
    const std::vector<double> head = rotate_head(problem, heads.data() + i * problem.head_size,
                                                 angles.data() + token * problem.rotary_dim);
    expected.insert(expected.end(), head.begin(), head.end());
  }
  in_every_mode([&] {
    const DeviceView view = upload(problem.dtype, {kNumTokens, problem.width()}, heads);
    rotary(stream(), view, upload({kNumTokens, problem.rotary_dim / 2, 2}, angles),
           problem.head_size, problem.interleaved);
    expect_close(download_floats(view), expected, rotary_tolerance(problem.dtype));
  });
}

TEST_F(RotaryTest, AnglesAreCosineAndSineOfPositionTimesFrequency) {
  const std::vector<std::int32_t> positions = {0, 1, -1, 77, 4095, 131071, -1};
  std::vector<float> frequencies;
  for (int pair = 0; pair < 33; ++pair) {
    frequencies.push_back(static_cast<float>(std::pow(10000.0, -pair / 33.0)));
  }
  const float scale = 1.25F;
  std::vector<double> expected;
  for (const std::int32_t position : positions) {
    for (const float frequency : frequencies) {
      // The product is rounded to f32, as every implementation of the models does it.
      const double angle = static_cast<double>(static_cast<float>(position) * frequency);
      expected.push_back(position < 0 ? 0 : std::cos(angle) * 1.25);
      expected.push_back(position < 0 ? 0 : std::sin(angle) * 1.25);
    }
  }
  in_every_mode([&] {
    const DeviceView angles =
        output(Dtype::kF32, {static_cast<std::int64_t>(positions.size()), 33, 2});
    rotary_angles(stream(), angles, upload({7}, positions), upload({33}, frequencies), scale);
    expect_close(download_floats(angles), expected, {.relative = 1e-6, .absolute = 3e-7});
  });
}

TEST_F(RotaryTest, NoTokensDoNothing) {
  in_every_mode([&] {
    const std::vector<std::int32_t> none;
    rotary_angles(stream(), output(Dtype::kF32, {0, 4, 2}), upload({0}, none),
                  upload({4}, std::vector<float>(4, 1.0F)), 1.0F);
    const DeviceView cache = output(Dtype::kBf16, {2, 2, 1, 16, 8});
    rotary_append_kv(stream(), {.qkv = output(Dtype::kBf16, {0, 24}),
                                .angles = output(Dtype::kF32, {0, 4, 2}),
                                .token_rows = upload({0}, none),
                                .positions = upload({0}, none),
                                .page_table = upload({1, 1}, std::vector<std::int32_t>{1}),
                                .kv_layer = cache,
                                .num_heads = 1});
    for (const float value : download_floats(cache)) {
      ASSERT_NE(value, value);
    }
  });
}

TEST_F(RotaryTest, WrongShapesAreBugs) {
  in_default_mode([&] {
    const DeviceView heads = output(Dtype::kBf16, {2, 32});
    EXPECT_THROW(rotary(stream(), heads, output(Dtype::kF32, {2, 9, 2}), 16, false), CheckError);
    EXPECT_THROW(rotary(stream(), heads, output(Dtype::kF32, {3, 8, 2}), 16, false), CheckError);
    EXPECT_THROW(rotary(stream(), heads, output(Dtype::kF32, {2, 8, 2}), 24, false), CheckError);
  });
}

}  // namespace
}  // namespace rigel::kernels
