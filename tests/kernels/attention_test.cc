#include "kernels/attention.h"

#include "tests/kernels/attention_case.h"

#include <algorithm>

namespace rigel::kernels {
namespace {

struct Heads {
  int num_heads;
  int num_kv_heads;
};

/// Positions [begin, end) of a prompt; those before are in the cache.
struct Span {
  int begin;
  int end;
};

constexpr Heads kHeads[] = {{9, 3}, {1, 1}, {14, 2}, {8, 1}, {16, 1}};
#if defined(__SANITIZE_THREAD__)
// One of each kind: the detector makes the rest take minutes.
constexpr int kHeadSizes[] = {8, 72, 160};
constexpr int kPageSizes[] = {16, 128};
constexpr int kContexts[] = {1, 16, 17, 257};
constexpr Span kPrompts[] = {{0, 1}, {0, 17}, {250, 264}};
#else
constexpr int kHeadSizes[] = {8, 16, 24, 40, 64, 72, 80, 96, 128, 136, 160, 192, 256};
constexpr int kPageSizes[] = {16, 32, 64, 128};
constexpr int kContexts[] = {1, 15, 16, 17, 255, 256, 257, 700};
constexpr Span kPrompts[] = {{0, 1}, {0, 17}, {250, 270}, {16, 49}, {690, 700}};
#endif

// Rounding of the output, and of f32 scores of up to 256 products.
Tolerance attention_tolerance(Dtype dtype) {
  return dtype == Dtype::kBf16 ? Tolerance{.relative = 0x1p-8, .absolute = 2e-5}
                               : Tolerance{.relative = 1e-5, .absolute = 5e-6};
}

/// One query at the end of each context, with padding before, among and behind them.
AttentionCase decode_case() {
  AttentionCase problem;
  problem.queries.push_back({-1, -1});
  for (const int context : kContexts) {
    const int request = static_cast<int>(problem.requests.size());
    problem.requests.push_back({static_cast<std::uint64_t>(request) + 1, context});
    problem.queries.push_back({request, context - 1});
    if (request == 3) {
      problem.queries.push_back({-1, -1});
    }
  }
  problem.queries.push_back({-1, -1});
  return problem;
}

/// Ragged prompts, with and without a cached prefix.
AttentionCase prefill_case() {
  AttentionCase problem;
  for (const Span span : kPrompts) {
    const int request = static_cast<int>(problem.requests.size());
    problem.requests.push_back({static_cast<std::uint64_t>(request) + 11, span.end});
    for (int position = span.begin; position < span.end; ++position) {
      problem.queries.push_back({request, position});
    }
    if (request == 1) {
      problem.queries.insert(problem.queries.end(), 3, Query{-1, -1});
    }
  }
  problem.queries.insert(problem.queries.end(), 2, Query{-1, -1});
  return problem;
}

class AttentionOracleTest : public AttentionTest {
 protected:
  void check_decode(const AttentionCase& problem) {
    SCOPED_TRACE("decode " + name_of_case(problem));
    const std::vector<double> expected = attention_oracle(problem);
    in_every_mode([&] {
      const AttentionArgs args = upload_case(problem);
      decode(args);
      expect_close(download_floats(args.out), expected, attention_tolerance(problem.dtype));
    });
  }
  void check_prefill(const AttentionCase& problem, int tile) {
    SCOPED_TRACE("prefill " + name_of_case(problem));
    const std::vector<double> expected = attention_oracle(problem);
    in_every_mode([&] {
      const AttentionArgs args = upload_case(problem);
      prefill(args, problem, tile);
      expect_close(download_floats(args.out), expected, attention_tolerance(problem.dtype));
    });
  }
};

TEST_F(AttentionOracleTest, DecodeMatchesTheDoublePrecisionOracleAtEveryHeadSize) {
  std::size_t index = 0;
  for (const int head_size : kHeadSizes) {
    AttentionCase problem = decode_case();
    problem.head_size = head_size;
    problem.num_heads = kHeads[index % std::size(kHeads)].num_heads;
    problem.num_kv_heads = kHeads[index % std::size(kHeads)].num_kv_heads;
    problem.dtype = index % 3 == 2 ? Dtype::kF32 : Dtype::kBf16;
    check_decode(problem);
    ++index;
  }
}

TEST_F(AttentionOracleTest, PrefillMatchesTheDoublePrecisionOracleAtEveryHeadSize) {
  std::size_t index = 1;
  for (const int head_size : kHeadSizes) {
    AttentionCase problem = prefill_case();
    problem.head_size = head_size;
    problem.num_heads = kHeads[index % std::size(kHeads)].num_heads;
    problem.num_kv_heads = kHeads[index % std::size(kHeads)].num_kv_heads;
    problem.dtype = index % 3 == 2 ? Dtype::kF32 : Dtype::kBf16;
    check_prefill(problem, kPrefillTile);
    ++index;
  }
}

TEST_F(AttentionOracleTest, EveryHeadGroupingMatchesTheOracle) {
  for (const Heads heads : kHeads) {
    AttentionCase problem = decode_case();
    problem.num_heads = heads.num_heads;
    problem.num_kv_heads = heads.num_kv_heads;
    problem.head_size = 32;
    check_decode(problem);
  }
}

TEST_F(AttentionOracleTest, B_66_AWindowHoldsExactlyItsNumberOfKeys) {
  for (const int window : {1, 16, 64, 300}) {
    AttentionCase problem = decode_case();
    problem.window = window;
    problem.head_size = 32;
    check_decode(problem);
    problem = prefill_case();
    problem.window = window;
    problem.head_size = 32;
    check_prefill(problem, kPrefillTile);
  }
}

TEST_F(AttentionOracleTest, TheSoftCapBoundsScores) {
  for (const float cap : {1.0F, 30.0F}) {
    AttentionCase problem = decode_case();
    problem.soft_cap = cap;
    check_decode(problem);
    problem = prefill_case();
    problem.soft_cap = cap;
    problem.window = 100;
    check_prefill(problem, 5);
  }
}

TEST_F(AttentionOracleTest, EveryPageSizeFindsTheSameKeys) {
  for (const int page_size : kPageSizes) {
    AttentionCase problem = decode_case();
    problem.page_size = page_size;
    problem.head_size = 40;
    check_decode(problem);
    problem = prefill_case();
    problem.page_size = page_size;
    problem.head_size = 40;
    check_prefill(problem, kPrefillTile);
  }
}

TEST_F(AttentionOracleTest, AKeyAfterTheQueryIsNeverTouched) {
  AttentionCase problem = prefill_case();
  const std::vector<double> expected = attention_oracle(problem);
  in_every_mode([&] {
    // Position 260 of request 2 is NaN; the queries 250 to 259 share a tile with it.
    const AttentionArgs args = upload_case(problem, {2, 260});
    prefill(args, problem, kPrefillTile);
    const std::vector<float> out = download_floats(args.out);
    const auto first = std::find_if(problem.queries.begin(), problem.queries.end(),
                                    [](const Query& query) { return query.request == 2; });
    const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(problem.num_heads) * problem.head_size;
    const std::ptrdiff_t begin = (first - problem.queries.begin()) * row;
    const std::vector<float> before(out.begin() + begin, out.begin() + begin + 10 * row);
    const std::vector<double> truth(expected.begin() + begin, expected.begin() + begin + 10 * row);
    expect_close(before, truth, attention_tolerance(problem.dtype));
    EXPECT_TRUE(out[static_cast<std::size_t>(begin + 10 * row)] !=
                out[static_cast<std::size_t>(begin + 10 * row)]);
  });
}

TEST_F(AttentionOracleTest, NoTokensAndEmptyTilesDoNothing) {
  in_every_mode([&] {
    AttentionCase problem = decode_case();
    const AttentionArgs args = upload_case(problem);
    attend_decode(stream(), args, 3, 0, workspace(16));
    attend_prefill(stream(), args, upload_tiles({}));
    attend_prefill(stream(), args, upload_tiles({4, 0, 0, 0}));
    for (const float value : download_floats(args.out)) {
      ASSERT_NE(value, value) << "the output was written";
    }
  });
}

TEST_F(AttentionOracleTest, DecodeTouchesItsOwnTokensOnly) {
  const AttentionCase problem = decode_case();
  const std::vector<double> expected = attention_oracle(problem);
  in_every_mode([&] {
    const AttentionArgs args = upload_case(problem);
    attend_decode(
        stream(), args, 2, 4,
        workspace(attend_decode_workspace_bytes(4, 720, problem.num_heads, problem.head_size)));
    const std::vector<float> out = download_floats(args.out);
    const std::size_t row = static_cast<std::size_t>(problem.num_heads * problem.head_size);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const bool own = i >= 2 * row && i < 6 * row;
      ASSERT_EQ(own, out[i] == out[i]) << "at element " << i;
    }
  });
}

TEST_F(AttentionOracleTest, WrongShapesAreBugs) {
  in_default_mode([&] {
    AttentionCase problem = decode_case();
    AttentionArgs args = upload_case(problem);
    EXPECT_THROW(attend_decode(stream(), args, 0, problem.num_tokens(), workspace(16)), CheckError);
    EXPECT_THROW(attend_decode(stream(), args, 5, problem.num_tokens(), workspace(65536)),
                 CheckError);
    args.window = -1;
    EXPECT_THROW(attend_prefill(stream(), args, upload_tiles({0, 1})), CheckError);
    args.window = 0;
    args.positions = args.token_rows.slice(0, 0, 2);
    EXPECT_THROW(attend_prefill(stream(), args, upload_tiles({0, 1})), CheckError);
  });
}

TEST(AttentionPlan, CoversEveryTileAndNeverMoreBlocksThanWork) {
  AttendPrefillParams prefill{};
  prefill.attention = {};
  prefill.attention.num_heads = 14;
  prefill.attention.num_kv_heads = 2;
  prefill.attention.head_size = 64;
  prefill.attention.is_bf16 = true;
  prefill.num_tiles = 5;
  const LaunchPlan plan = attend_prefill_plan(prefill, 1024);
  EXPECT_EQ(plan.grid.x, 5U);
  EXPECT_EQ(plan.grid.y, 2U);
  EXPECT_GE(plan.grid.z * 8, 7U * kPrefillTile);
  AttendDecodeParams decode{};
  decode.attention = prefill.attention;
  decode.num_tokens = 3;
  const AttendDecodePlan few = attend_decode_plan(decode, 512);
  EXPECT_EQ(few.chunks.grid.x, 6U);
  EXPECT_EQ(few.fold.grid.x, 3U);
  EXPECT_EQ(few.fold.grid.y, 14U);
  decode.num_tokens = 512;
  EXPECT_LE(attend_decode_plan(decode, 131072).chunks.grid.x, 2048U);
  EXPECT_LE(attend_decode_plan(decode, 131072).chunks.shared_bytes, 227U * 1024U);
}

}  // namespace
}  // namespace rigel::kernels
