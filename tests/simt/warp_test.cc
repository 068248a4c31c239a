// Warp operations against plain loops over the lanes.

#include "tests/simt/run_kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace {

using simt_test::all_orders;
using simt_test::run_kernel;

constexpr int kThreeWarps = 96;

template <class T>
struct Shuffled {
  T index[kThreeWarps], exclusive[kThreeWarps], up[kThreeWarps], down[kThreeWarps];
};

template <class T>
__global__ void shuffle_kernel(const T* in, const int* source, int distance, Shuffled<T>* out) {
  const int t = static_cast<int>(threadIdx.x);
  out->index[t] = simt::shfl_idx(in[t], source[t]);
  out->exclusive[t] = simt::shfl_xor(in[t], distance);
  out->up[t] = simt::shfl_up(in[t], distance);
  out->down[t] = simt::shfl_down(in[t], distance);
}

template <class T>
class Shuffle : public testing::Test {};
using ShuffledTypes = testing::Types<int, unsigned, float, std::int64_t, double>;
TYPED_TEST_SUITE(Shuffle, ShuffledTypes);

TYPED_TEST(Shuffle, MatchesAPlainLoopForEveryDistance) {
  std::mt19937 random(7);
  std::vector<TypeParam> in(kThreeWarps);
  std::vector<int> source(kThreeWarps);
  for (int t = 0; t < kThreeWarps; ++t) {
    in[t] = static_cast<TypeParam>(random() % 100000);
    source[t] = static_cast<int>(random() % 32);
  }
  for (const auto& options : all_orders()) {
    for (int distance = 0; distance < 32; ++distance) {
      Shuffled<TypeParam> out{};
      const simt::Status status = run_kernel<shuffle_kernel<TypeParam>>(
          options, {.grid = 1, .block = kThreeWarps}, in.data(), source.data(), distance, &out);
      ASSERT_TRUE(status.ok()) << status.message();
      for (int t = 0; t < kThreeWarps; ++t) {
        const int lane = t % 32;
        const int base = t - lane;
        ASSERT_EQ(out.index[t], in[base + source[t]]);
        ASSERT_EQ(out.exclusive[t], in[base + (lane ^ distance)]);
        ASSERT_EQ(out.up[t], in[lane >= distance ? t - distance : t]);
        ASSERT_EQ(out.down[t], in[lane + distance < 32 ? t + distance : t]);
      }
    }
  }
}

template <int W, class T>
__global__ void reduce_kernel(const T* in, T* sum, T* largest) {
  sum[threadIdx.x] = simt::warp_sum<W>(in[threadIdx.x]);
  largest[threadIdx.x] = simt::warp_max<W>(in[threadIdx.x]);
}

// What the device runs: a shuffle a step. The coarse operation must give the same bits.
template <int W, class T>
__global__ void shuffle_reduce_kernel(const T* in, T* sum) {
  T value = in[threadIdx.x];
  for (int distance = W / 2; distance > 0; distance /= 2) {
    value += simt::shfl_xor(value, distance);
  }
  sum[threadIdx.x] = value;
}

template <int W, class T>
void check_reductions(const std::vector<T>& in) {
  for (const auto& options : all_orders()) {
    std::vector<T> sum(kThreeWarps), largest(kThreeWarps), stepwise(kThreeWarps);
    ASSERT_TRUE((run_kernel<reduce_kernel<W, T>>(options, {.grid = 1, .block = kThreeWarps},
                                                 in.data(), sum.data(), largest.data())
                     .ok()));
    ASSERT_TRUE((run_kernel<shuffle_reduce_kernel<W, T>>(options, {.grid = 1, .block = kThreeWarps},
                                                         in.data(), stepwise.data())
                     .ok()));
    for (int t = 0; t < kThreeWarps; ++t) {
      double expected = 0.0;
      T expected_max = in[t / W * W];
      for (int other = t / W * W; other < t / W * W + W; ++other) {
        expected += static_cast<double>(in[other]);
        expected_max = std::max(expected_max, in[other]);
      }
      EXPECT_NEAR(static_cast<double>(sum[t]), expected, 1e-5 * std::abs(expected) + 1e-5);
      EXPECT_EQ(largest[t], expected_max);
      EXPECT_EQ(std::memcmp(&sum[t], &stepwise[t], sizeof(T)), 0);
    }
  }
}

TEST(WarpReduction, EachWidthMatchesAPlainLoopAndTheButterflyOfShuffles) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0.0f, 10.0f);
  std::vector<float> floats(kThreeWarps);
  std::vector<int> ints(kThreeWarps);
  for (int t = 0; t < kThreeWarps; ++t) {
    floats[t] = normal(random);
    ints[t] = static_cast<int>(random() % 2000) - 1000;
  }
  check_reductions<2>(floats);
  check_reductions<4>(floats);
  check_reductions<8>(floats);
  check_reductions<16>(floats);
  check_reductions<32>(floats);
  check_reductions<8>(ints);
  check_reductions<32>(ints);
}

TEST(WarpReduction, AMaximumIgnoresNaNAsFmaxfDoes) {
  std::vector<float> in(32, std::numeric_limits<float>::quiet_NaN());
  in[13] = -5.0f;
  std::vector<float> sum(32), largest(32);
  ASSERT_TRUE((run_kernel<reduce_kernel<32, float>>({}, {.grid = 1, .block = 32}, in.data(),
                                                    sum.data(), largest.data())
                   .ok()));
  EXPECT_THAT(largest, testing::Each(-5.0f));
  EXPECT_TRUE(std::isnan(sum[0]));
}

__global__ void vote_kernel(const int* in, unsigned* ballot, unsigned* match, int* any, int* all) {
  const int t = static_cast<int>(threadIdx.x);
  ballot[t] = __ballot_sync(0xffffffffu, in[t] > 2);
  match[t] = __match_any_sync(0xffffffffu, in[t]);
  any[t] = __any_sync(0xffffffffu, in[t] == 4);
  all[t] = __all_sync(0xffffffffu, in[t] >= 0);
}

TEST(WarpVote, MatchesAPlainLoop) {
  std::vector<int> in(kThreeWarps);
  for (int t = 0; t < kThreeWarps; ++t) {
    in[t] = t < 64 ? t * 7 % 5 : 1;  // the last warp holds no 4
  }
  for (const auto& options : all_orders()) {
    std::vector<unsigned> ballot(kThreeWarps), match(kThreeWarps);
    std::vector<int> any(kThreeWarps), all(kThreeWarps);
    ASSERT_TRUE(run_kernel<vote_kernel>(options, {.grid = 1, .block = kThreeWarps}, in.data(),
                                        ballot.data(), match.data(), any.data(), all.data())
                    .ok());
    for (int t = 0; t < kThreeWarps; ++t) {
      unsigned expected_ballot = 0;
      unsigned expected_match = 0;
      for (int lane = 0; lane < 32; ++lane) {
        const int other = t / 32 * 32 + lane;
        expected_ballot |= in[other] > 2 ? 1u << lane : 0u;
        expected_match |= in[other] == in[t] ? 1u << lane : 0u;
      }
      EXPECT_EQ(ballot[t], expected_ballot);
      EXPECT_EQ(match[t], expected_match);
      EXPECT_EQ(any[t], t < 64 ? 1 : 0);
      EXPECT_EQ(all[t], 1);
    }
  }
}

// A result must survive until its lane reads it, although faster lanes are operations ahead.
__global__ void chain_kernel(int rounds, int* out) {
  int value = static_cast<int>(threadIdx.x);
  for (int round = 0; round < rounds; ++round) {
    value = simt::shfl_down(value, 1) + round;
    if (threadIdx.x % 2 == 0) {
      __syncwarp(0x55555555u);
    }
    value += static_cast<int>(__popc(__ballot_sync(0xffffffffu, value % 2)));
  }
  out[threadIdx.x] = value;
}

TEST(WarpOperations, GiveTheSameInEveryOrder) {
  std::vector<int> first;
  for (const auto& options : all_orders()) {
    std::vector<int> out(kThreeWarps);
    ASSERT_TRUE(
        run_kernel<chain_kernel>(options, {.grid = 1, .block = kThreeWarps}, 200, out.data()).ok());
    if (first.empty()) {
      first = out;
    }
    EXPECT_EQ(out, first);
  }
}

}  // namespace
