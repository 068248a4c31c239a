#include "tests/simt/run_kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

namespace {

using simt::bf16;
using simt::f16;
using simt_test::all_orders;
using simt_test::run_kernel;

template <class T>
__global__ void scale_kernel(const T* in, T* out, float factor) {
  simt::Vec<T> whole = simt::load_vec(in + threadIdx.x * simt::kVec<T>);
  for (int i = 0; i < simt::kVec<T>; ++i) {
    whole.set(i, whole.get(i) * factor);
  }
  simt::store_vec(out + threadIdx.x * simt::kVec<T>, whole);
}

template <class T>
__global__ void copy_half_kernel(const T* in, T* out) {
  constexpr int kHalf = simt::kVec<T> / 2;
  simt::store_half_vec(out + threadIdx.x * kHalf, simt::load_half_vec(in + threadIdx.x * kHalf));
}

template <class T>
class VecOfType : public testing::Test {};
using VecTypes = testing::Types<float, bf16, f16>;
TYPED_TEST_SUITE(VecOfType, VecTypes);

TYPED_TEST(VecOfType, ScalesAndCopiesEveryElement) {
  constexpr int kCount = 32 * simt::kVec<TypeParam>;
  alignas(16) TypeParam in[kCount];
  alignas(16) TypeParam out[kCount];
  alignas(16) TypeParam copy[kCount];
  for (int i = 0; i < kCount; ++i) {
    in[i] = TypeParam(static_cast<float>(i % 61) - 30.0f);
  }
  ASSERT_TRUE(
      run_kernel<scale_kernel<TypeParam>>({}, {.grid = 1, .block = 32}, &in[0], &out[0], 2.0f)
          .ok());
  ASSERT_TRUE(
      run_kernel<copy_half_kernel<TypeParam>>({}, {.grid = 1, .block = 64}, &in[0], &copy[0]).ok());
  for (int i = 0; i < kCount; ++i) {
    EXPECT_EQ(static_cast<float>(out[i]), 2.0f * (static_cast<float>(i % 61) - 30.0f));
    EXPECT_EQ(static_cast<float>(copy[i]), static_cast<float>(in[i]));
  }
}

template <int BLOCK>
__global__ void block_reduce_kernel(const float* in, float* sum, float* largest) {
  SIMT_SHARED(float, red, BLOCK / 32);
  const unsigned t = blockIdx.x * BLOCK + threadIdx.x;
  sum[t] = simt::block_sum<BLOCK>(in[t], red);
  largest[t] = simt::block_max<BLOCK>(in[t], red);
}

template <int BLOCK>
void check_block_reductions() {
  constexpr int kBlocks = 3;
  std::vector<float> in(kBlocks * BLOCK);
  for (std::size_t i = 0; i < in.size(); ++i) {
    in[i] = static_cast<float>(static_cast<int>(i * 7919 % 1013) - 506);  // sums are exact
  }
  for (const auto& options : all_orders()) {
    std::vector<float> sum(in.size()), largest(in.size());
    ASSERT_TRUE(run_kernel<block_reduce_kernel<BLOCK>>(options, {.grid = kBlocks, .block = BLOCK},
                                                       in.data(), sum.data(), largest.data())
                    .ok());
    for (int block = 0; block < kBlocks; ++block) {
      double expected = 0.0;
      float expected_max = -1e9f;
      for (int t = 0; t < BLOCK; ++t) {
        expected += in[static_cast<std::size_t>(block * BLOCK + t)];
        expected_max = std::max(expected_max, in[static_cast<std::size_t>(block * BLOCK + t)]);
      }
      for (int t = 0; t < BLOCK; ++t) {
        EXPECT_EQ(sum[static_cast<std::size_t>(block * BLOCK + t)], expected);
        EXPECT_EQ(largest[static_cast<std::size_t>(block * BLOCK + t)], expected_max);
      }
    }
  }
}

TEST(BlockReduction, GivesSumAndMaximumToEveryThread) {
  check_block_reductions<32>();
  check_block_reductions<64>();
  check_block_reductions<256>();
  check_block_reductions<1024>();
}

__global__ void count_kernel(int* total, unsigned* ticket, float* sum, int* largest, int* last) {
  SIMT_SHARED(int, in_block, 1);
  if (threadIdx.x == 0) {
    in_block[0] = 0;
  }
  __syncthreads();
  simt::atomic_add_block(in_block, 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    atomicAdd(total, in_block[0]);
    atomicAdd(sum, 0.5f);
    atomicMax(largest, static_cast<int>(blockIdx.x));
    __threadfence();
    if (atomicAdd(ticket, 1u) == gridDim.x - 1) {
      *last = *total;
    }
  }
}

TEST(Atomics, CountAcrossThreadsAndBlocks) {
  for (const int threads : {1, 4}) {
    int total = 0;
    unsigned ticket = 0;
    float sum = 0.0f;
    int largest = -1;
    int last = -1;
    ASSERT_TRUE(run_kernel<count_kernel>({.threads = threads}, {.grid = 100, .block = 64}, &total,
                                         &ticket, &sum, &largest, &last)
                    .ok());
    EXPECT_EQ(total, 6400);
    EXPECT_EQ(sum, 50.0f);
    EXPECT_EQ(largest, 99);
    EXPECT_EQ(last, 6400);
  }
}

__global__ void exchange_kernel(int* lock_word, int* seen, unsigned* bits, int* smallest) {
  seen[threadIdx.x] = atomicExch(lock_word, static_cast<int>(threadIdx.x));
  atomicOr(bits, 1u << threadIdx.x);
  atomicMin(smallest, -static_cast<int>(threadIdx.x));
  if (threadIdx.x == 31) {
    seen[32] = atomicCAS(lock_word, -7, 1);
  }
}

TEST(Atomics, ExchangeInTheOrderOfTheThreads) {
  int lock_word = -1;
  std::vector<int> seen(33, -9);
  unsigned bits = 0;
  int smallest = 0;
  ASSERT_TRUE(run_kernel<exchange_kernel>({}, {.grid = 1, .block = 32}, &lock_word, seen.data(),
                                          &bits, &smallest)
                  .ok());
  for (int t = 0; t < 32; ++t) {
    EXPECT_EQ(seen[static_cast<std::size_t>(t)], t - 1);
  }
  EXPECT_EQ(seen[32], 31);
  EXPECT_EQ(lock_word, 31);
  EXPECT_EQ(bits, ~0u);
  EXPECT_EQ(smallest, -31);
}

}  // namespace
