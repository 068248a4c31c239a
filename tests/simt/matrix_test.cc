// ldmatrix, mma and cp.async against plain loops over the matrices.

#include "tests/simt/run_kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>

namespace {

using simt::bf16;
using simt::Options;
using simt::Status;
using simt_test::all_orders;
using simt_test::run_kernel;

constexpr int kK = 32;        // inner extent: two steps of 16
constexpr int kRows = 32;     // two row tiles
constexpr int kColumns = 24;  // three column tiles

// One warp: c (32 x 24) = a (32 x 32) b^T (24 x 32), or with b given as k x columns when kTransposed.
template <bool kTransposed>
__global__ void product_kernel(const bf16* a, const bf16* b, float* c) {
  SIMT_SHARED(bf16, a_tile, kRows * kK);
  SIMT_SHARED(bf16, b_tile, kColumns * kK);
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane * 8; i < kRows * kK; i += 32 * 8) {
    simt::cp_async16(a_tile + i, a + i);
  }
  for (int i = lane * 8; i < kColumns * kK; i += 32 * 8) {
    simt::cp_async16(b_tile + i, b + i);
  }
  simt::cp_async_commit();
  simt::cp_async_wait<0>();
  __syncthreads();

  simt::FragC sums[2][3] = {};
  for (int k = 0; k < kK; k += 16) {
    simt::FragA fa[2];
    simt::FragB fb[3];
    for (int m = 0; m < 2; ++m) {
      const int row = m * 16 + lane % 16;
      simt::ldmatrix_x4(fa[m], a_tile + row * kK + k + lane / 16 * 8);
    }
    for (int n = 0; n < 3; ++n) {
      if constexpr (kTransposed) {
        simt::ldmatrix_x2_trans(fb[n], b_tile + (k + lane % 16) * kColumns + n * 8);
      } else {
        simt::ldmatrix_x2(fb[n], b_tile + (n * 8 + lane % 8) * kK + k + lane / 8 % 2 * 8);
      }
    }
    simt::mma_tile<2, 3>(sums, fa, fb);
  }
  for (int m = 0; m < 2; ++m) {
    for (int n = 0; n < 3; ++n) {
      for (int i = 0; i < 4; ++i) {
        const int row = m * 16 + lane / 4 + i / 2 * 8;
        const int column = n * 8 + lane % 4 * 2 + i % 2;
        c[row * kColumns + column] = sums[m][n].sum[i];
      }
    }
  }
}

template <bool kTransposed>
void check_product(const Options& options) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  alignas(16) bf16 a[kRows * kK];
  alignas(16) bf16 b[kColumns * kK];
  for (bf16& value : a) {
    value = bf16(normal(random));
  }
  for (bf16& value : b) {
    value = bf16(normal(random));
  }
  std::vector<float> c(kRows * kColumns, std::nanf(""));
  const Status status = run_kernel<product_kernel<kTransposed>>(options, {.grid = 1, .block = 32},
                                                                &a[0], &b[0], c.data());
  ASSERT_TRUE(status.ok()) << status.message();
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      double expected = 0.0;
      for (int k = 0; k < kK; ++k) {
        const bf16 right = kTransposed ? b[k * kColumns + column] : b[column * kK + k];
        expected += static_cast<double>(static_cast<float>(a[row * kK + k])) *
                    static_cast<double>(static_cast<float>(right));
      }
      EXPECT_NEAR(c[static_cast<std::size_t>(row * kColumns + column)], expected, 1e-5);
    }
  }
}

TEST(Matrix, AProductOfTilesMatchesAPlainLoop) {
  for (Options options : all_orders()) {
    for (const bool late : {true, false}) {
      options.cp_async_late = late;
      check_product<false>(options);
      check_product<true>(options);
    }
  }
}

// What thread t copied, read by t itself: no barrier needed, only the wait.
template <int kGroupsLeft>
__global__ void staged_kernel(const float* in, float* out) {
  SIMT_SHARED(float, tile, 3 * 4 * 32);
  const int t = static_cast<int>(threadIdx.x);
  for (int stage = 0; stage < 3; ++stage) {
    simt::cp_async16(tile + (stage * 32 + t) * 4, in + (stage * 32 + t) * 4, stage != 1);
    simt::cp_async_commit();
  }
  simt::cp_async_wait<kGroupsLeft>();
  for (int stage = 0; stage < 3; ++stage) {
    out[stage * 32 + t] = tile[(stage * 32 + t) * 4 + 3];
  }
}

template <int kGroupsLeft>
std::vector<float> staged(bool late) {
  alignas(16) float in[3 * 4 * 32];
  for (int i = 0; i < 3 * 4 * 32; ++i) {
    in[i] = static_cast<float>(i);
  }
  std::vector<float> out(3 * 32, -1.0f);
  EXPECT_TRUE(run_kernel<staged_kernel<kGroupsLeft>>({.cp_async_late = late},
                                                     {.grid = 1, .block = 32},
                                                     static_cast<const float*>(in), out.data())
                  .ok());
  return out;
}

TEST(AsyncCopy, LateCopiesLandWithTheWaitThatCoversTheirGroup) {
  const std::vector<float> out = staged<1>(true);
  EXPECT_EQ(out[5], 5 * 4 + 3);
  EXPECT_EQ(out[32 + 5], 0.0f);          // not valid: zeros
  EXPECT_TRUE(std::isnan(out[64 + 5]));  // still in flight: the missing wait shows
  EXPECT_EQ(staged<0>(true)[64 + 5], (64 + 5) * 4 + 3);
}

TEST(AsyncCopy, EarlyCopiesLandAtOnce) {
  EXPECT_EQ(staged<3>(false)[64 + 5], (64 + 5) * 4 + 3);
}

__global__ void too_many_kernel(const float* in) {
  SIMT_SHARED(float, tile, 4);
  for (int i = 0; i < 65; ++i) {
    simt::cp_async16(tile, in);
  }
}

TEST(AsyncCopy, TooManyInFlightAreReported) {
  alignas(16) float in[4] = {};
  const Status status =
      run_kernel<too_many_kernel>({}, {.grid = 1, .block = 1}, static_cast<const float*>(in));
  EXPECT_THAT(status.message(), testing::HasSubstr("more than 64 copies in flight at matrix_test"));
}

}  // namespace
