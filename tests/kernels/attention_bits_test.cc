#include "kernels/attention.h"
#include "tests/kernels/attention_case.h"

#include <fmt/core.h>

#include <algorithm>

namespace rigel::kernels {
namespace {

// A query's output is a function of the query and its history: these tests ask for the same queries in many ways and compare
// every bit, in the native variant and in the device text in each thread order.

using Bits = std::vector<std::byte>;

// Around a chunk's edge, from inside a page on.
#if defined(__SANITIZE_THREAD__)
constexpr int kBegin = 247;
constexpr int kEnd = 267;
constexpr int kFirstOfMany = 0;
constexpr int kThreads[] = {1, 3};
#else
constexpr int kBegin = 231;
constexpr int kEnd = 283;
constexpr int kFirstOfMany = 300;
constexpr int kThreads[] = {1, 2, 3, 8};
#endif

AttentionCase span_case(int head_size, int num_heads, int num_kv_heads, Dtype dtype) {
  AttentionCase problem;
  problem.dtype = dtype;
  problem.head_size = head_size;
  problem.num_heads = num_heads;
  problem.num_kv_heads = num_kv_heads;
  problem.requests = {{42, kEnd}};
  for (int position = kBegin; position < kEnd; ++position) {
    problem.queries.push_back({0, position});
  }
  return problem;
}

std::vector<AttentionCase> span_cases() {
#if defined(__SANITIZE_THREAD__)
  // Wide heads take minutes under the detector.
  std::vector<AttentionCase> cases = {span_case(40, 7, 1, Dtype::kBf16)};
#else
  std::vector<AttentionCase> cases = {
      span_case(64, 9, 3, Dtype::kBf16), span_case(40, 7, 1, Dtype::kBf16),
      span_case(136, 2, 2, Dtype::kF32), span_case(256, 16, 1, Dtype::kBf16)};
#endif
  AttentionCase windowed = span_case(72, 14, 2, Dtype::kBf16);
  windowed.window = 20;  // some queries see one chunk, some two
  windowed.soft_cap = 20;
  cases.push_back(windowed);
  windowed.window = 1;
  cases.push_back(windowed);
  return cases;
}

class AttentionBitsTest : public AttentionTest {
 protected:
  Bits prefilled(const AttentionCase& problem, int tile) {
    const AttentionArgs args = upload_case(problem);
    prefill(args, problem, tile);
    return download_bits(args.out);
  }
  Bits decoded(const AttentionCase& problem) {
    const AttentionArgs args = upload_case(problem);
    decode(args);
    return download_bits(args.out);
  }
};

TEST_F(AttentionBitsTest, APromptCutIntoAnyTilesGivesTheBitsOfDecode) {
  for (const AttentionCase& problem : span_cases()) {
    SCOPED_TRACE(name_of_case(problem));
    in_every_mode([&] {
      const Bits expected = decoded(problem);
      for (const int tile : {1, 7, kPrefillTile}) {
        EXPECT_EQ(prefilled(problem, tile), expected) << "tiles of " << tile;
      }
    });
  }
}

TEST_F(AttentionBitsTest, APromptCutIntoStepsGivesTheSameBits) {
  const AttentionCase whole = span_case(64, 9, 3, Dtype::kBf16);
  in_every_mode([&] {
    const Bits expected = prefilled(whole, kPrefillTile);
    for (const int step : {1, 7, 40}) {
      for (int first = 0; first < whole.num_tokens(); first += step) {
        if (step == 1 && first % 13 != 0) {
          continue;
        }
        // Keys of later steps are not in the cache yet.
        AttentionCase part = whole;
        const int count = std::min(step, whole.num_tokens() - first);
        part.queries.assign(whole.queries.begin() + first, whole.queries.begin() + first + count);
        part.requests[0].num_keys = part.queries.back().position + 1;
        EXPECT_EQ(prefilled(part, kPrefillTile), output_rows(expected, whole, first, count))
            << "steps of " << step << ", from " << first;
      }
    }
  });
}

TEST_F(AttentionBitsTest, NeitherPlaceNorNeighboursNorPaddingChangeAQuery) {
  AttentionCase alone;
  alone.requests = {{7, 600}};
  alone.queries = {{0, 599}};
  AttentionCase crowd = alone;
  crowd.requests = {{1, 300}, {2, 5}, {7, 600}, {3, 700}};
  crowd.queries = {{0, 299}, {-1, -1}, {3, 699}, {2, 599}, {1, 4}, {-1, -1}, {0, 120}};
  in_every_mode([&] {
    const Bits expected = decoded(alone);
    EXPECT_EQ(output_rows(decoded(crowd), crowd, 3, 1), expected);
    EXPECT_EQ(output_rows(prefilled(crowd, kPrefillTile), crowd, 3, 1), expected);
    AttentionCase reversed = crowd;
    std::reverse(reversed.queries.begin(), reversed.queries.end());
    EXPECT_EQ(output_rows(decoded(reversed), reversed, 3, 1), expected);
    const Bits padding(output_rows(expected, alone, 0, 1).size(), std::byte{0});
    EXPECT_EQ(output_rows(decoded(crowd), crowd, 1, 1), padding);
    EXPECT_EQ(output_rows(prefilled(crowd, kPrefillTile), crowd, 5, 1), padding);
  });
}

TEST_F(AttentionBitsTest, TheWorkspaceChangesNoBits) {
  AttentionCase problem;
  problem.requests = {{1, 700}, {2, 300}, {3, 100}, {4, 513}};
  problem.queries = {{0, 699}, {1, 299}, {-1, -1}, {2, 99}, {3, 512}};
  in_every_mode([&] {
    const Bits expected = decoded(problem);
    // Room for no slot at all, for the first token's three, and for those of the first two tokens.
    for (const int num_slots : {0, 3, 4, 5}) {
      const AttentionArgs args = upload_case(problem);
      const std::int64_t none =
          attend_decode_workspace_bytes(problem.num_tokens(), 0, problem.num_heads, 64);
      const std::int64_t one = attend_decode_workspace_bytes(1, 1, problem.num_heads, 64) -
                               attend_decode_workspace_bytes(1, 0, problem.num_heads, 64);
      attend_decode(stream(), args, 0, problem.num_tokens(), workspace(none + num_slots * one));
      EXPECT_EQ(download_bits(args.out), expected) << num_slots << " slots";
    }
  });
}

TEST_F(AttentionBitsTest, TheNumberOfThreadsChangesNoBits) {
  AttentionCase problem;
  problem.num_heads = 4;
  problem.num_kv_heads = 2;
  problem.requests = {{1, 700}, {2, 300}};
  problem.queries = {{0, 699}, {1, 299}};
  for (const char* texts : {"", "all"}) {
    std::vector<Bits> results;
    for (const int threads : kThreads) {
      KernelMode mode{fmt::format("{} threads, texts '{}'", threads, texts), {}};
      mode.options.num_threads = threads;
      mode.options.device_texts = texts;
      run_in(mode, [&] {
        results.push_back(decoded(problem));
        results.push_back(prefilled(problem, kPrefillTile));
      });
    }
    for (const Bits& result : results) {
      EXPECT_EQ(result, results.front());
    }
  }
}

TEST_F(AttentionBitsTest, MoreDecodeTokensThanTheListKernelHasThreads) {
  AttentionCase problem;
  problem.num_heads = 1;
  problem.num_kv_heads = 1;
  problem.head_size = 8;
  problem.requests = {{1, 600}, {2, 40}};
  for (int i = 0; i < 300; ++i) {
    problem.queries.push_back(i % 7 == 3 ? Query{-1, -1}
                                         : Query{i % 2, i % 2 == 0 ? kFirstOfMany + i : i % 40});
  }
  in_every_mode([&] { EXPECT_EQ(decoded(problem), prefilled(problem, 1)); });
}

}  // namespace
}  // namespace rigel::kernels
