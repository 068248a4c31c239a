#include "tests/simt/run_kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace {

using simt::Options;
using simt::Order;
using simt::Status;
using simt_test::all_orders;
using simt_test::run_kernel;
using testing::HasSubstr;

constexpr int kFourWarps = 128;

__global__ void read_unwritten_kernel(float* out) {
  SIMT_SHARED(float, scratch, kFourWarps);
  float* const dynamic = simt::dyn_smem<float>();
  out[blockIdx.x * 2] = scratch[5];
  out[blockIdx.x * 2 + 1] = dynamic[7];
  scratch[5] = 1.0f;
  dynamic[7] = 1.0f;
}

TEST(SharedMemory, ReadsAsNaNUntilItIsWrittenInEachBlockAnew) {
  std::vector<float> out(2 * 4, 0.0f);
  ASSERT_TRUE(
      run_kernel<read_unwritten_kernel>({}, {.grid = 4, .block = 1, .shared_bytes = 64}, out.data())
          .ok());
  for (const float value : out) {
    EXPECT_TRUE(std::isnan(value));
  }
}

TEST(SharedMemory, KeepsItsBytesWithoutPoison) {
  std::vector<float> out(2 * 2, 0.0f);
  ASSERT_TRUE(run_kernel<read_unwritten_kernel>(
                  {.poison = false}, {.grid = 2, .block = 1, .shared_bytes = 64}, out.data())
                  .ok());
  EXPECT_EQ(out[2], 1.0f);
  EXPECT_EQ(out[3], 1.0f);
}

// The neighbour's value, with the barrier that orders it or without.
template <bool kWithBarrier>
__global__ void neighbour_sum_kernel(const float* in, float* out) {
  SIMT_SHARED(float, tile, kFourWarps);
  tile[threadIdx.x] = in[threadIdx.x];
  if constexpr (kWithBarrier) {
    __syncthreads();
  }
  out[threadIdx.x] = tile[(threadIdx.x + 1) % kFourWarps];
}

std::vector<float> numbers() {
  std::vector<float> in(kFourWarps);
  for (int t = 0; t < kFourWarps; ++t) {
    in[t] = static_cast<float>(t);
  }
  return in;
}

#if !defined(__SANITIZE_THREAD__)  // there it is a reported race: see race_test.cc
TEST(SharedMemory, AMissingBarrierShowsInEveryOrder) {
  const std::vector<float> in = numbers();
  for (const Options& options : all_orders()) {
    std::vector<float> out(kFourWarps, -1.0f);
    ASSERT_TRUE(run_kernel<neighbour_sum_kernel<false>>(options, {.grid = 1, .block = kFourWarps},
                                                        in.data(), out.data())
                    .ok());
    int wrong = 0;
    for (int t = 0; t < kFourWarps; ++t) {
      wrong += out[t] == in[(t + 1) % kFourWarps] ? 0 : 1;
    }
    EXPECT_GT(wrong, 0);
  }
}
#endif

TEST(SharedMemory, WithItsBarrierEveryOrderIsRight) {
  const std::vector<float> in = numbers();
  for (const Options& options : all_orders()) {
    std::vector<float> out(kFourWarps, -1.0f);
    ASSERT_TRUE(run_kernel<neighbour_sum_kernel<true>>(options, {.grid = 1, .block = kFourWarps},
                                                       in.data(), out.data())
                    .ok());
    for (int t = 0; t < kFourWarps; ++t) {
      EXPECT_EQ(out[t], in[(t + 1) % kFourWarps]);
    }
  }
}

template <int BYTES>
__global__ void large_kernel() {
  SIMT_SHARED(char, buffer, BYTES);
  buffer[threadIdx.x] = 0;
}

TEST(SharedMemory, MoreThan48KbStaticIsRefused) {
  EXPECT_TRUE(run_kernel<large_kernel<48 * 1024>>({}, {.grid = 1, .block = 32}).ok());
  const Status status = run_kernel<large_kernel<48 * 1024 + 1>>({}, {.grid = 1, .block = 32});
  EXPECT_THAT(status.message(), HasSubstr("shared memory: 49153 bytes at shared_memory_test.cc:"));
}

TEST(SharedMemory, MoreThan227KbInAllIsRefused) {
  const unsigned limit = 227 * 1024;
  EXPECT_TRUE(
      run_kernel<large_kernel<64>>({}, {.grid = 1, .block = 32, .shared_bytes = limit - 64}).ok());
  EXPECT_FALSE(
      run_kernel<large_kernel<64>>({}, {.grid = 1, .block = 32, .shared_bytes = limit - 63}).ok());
  EXPECT_THAT(run_kernel<large_kernel<64>>({}, {.grid = 1, .block = 32, .shared_bytes = limit + 1})
                  .message(),
              HasSubstr("invalid launch"));
}

__global__ void two_arrays_kernel(int* distance) {
  SIMT_SHARED(char, first, 3);
  SIMT_SHARED(float, second, 5);
  first[0] = 1;
  second[0] = 1.0f;
  distance[0] = static_cast<int>(reinterpret_cast<std::uintptr_t>(first) % 16 +
                                 reinterpret_cast<std::uintptr_t>(second) % 16);
  distance[1] = first[0];
}

TEST(SharedMemory, ArraysAreDistinctAndAligned) {
  std::vector<int> distance(2, -1);
  ASSERT_TRUE(run_kernel<two_arrays_kernel>({}, {.grid = 1, .block = 1}, distance.data()).ok());
  EXPECT_THAT(distance, testing::ElementsAre(0, 1));
}

__global__ void misaligned_kernel(const float* in, float* out) {
  simt::store_vec(out, simt::load_vec(in + 1));
}

TEST(Access, AMisalignedVectorIsReportedWithTheKernelsLine) {
  alignas(16) float in[8] = {};
  alignas(16) float out[4] = {};
  const Status status = run_kernel<misaligned_kernel>({}, {.grid = 1, .block = 1},
                                                      static_cast<const float*>(in), &out[0]);
  EXPECT_THAT(status.message(), HasSubstr("misaligned access: thread (0,0,0) accesses 16 bytes"));
  EXPECT_THAT(status.message(), HasSubstr("shared_memory_test.cc:"));
}

#if defined(__SANITIZE_ADDRESS__)

__global__ void past_the_end_kernel(float* out, int extra) {
  out[threadIdx.x + extra] = 1.0f;
}

__global__ void past_shared_kernel(float* out, int index) {
  SIMT_SHARED(float, tile, 33);
  tile[threadIdx.x] = 0.0f;
  out[threadIdx.x] = tile[index];
}

__global__ void past_dynamic_kernel(float* out, int index) {
  out[threadIdx.x] = simt::dyn_smem<float>()[index];
}

__global__ void deep_kernel(int depth, int* out) {
  volatile char frame[512];
  frame[depth % 512] = 1;
  if (depth > 0) {
    deep_kernel(depth - 1, out);
  }
  out[threadIdx.x] = frame[depth % 512];
}

TEST(OutOfBoundsDeathTest, AWritePastTheEndOfMemoryIsCaughtAtItsLine) {
  std::vector<float> out(33);
  EXPECT_DEATH((void)run_kernel<past_the_end_kernel>({}, {.grid = 1, .block = 32}, out.data(), 2),
               "heap-buffer-overflow(.|\n)*past_the_end_kernel(.|\n)*shared_memory_test.cc");
}

TEST(OutOfBoundsDeathTest, AReadPastASharedArrayIsCaughtAtItsLine) {
  std::vector<float> out(32);
  EXPECT_DEATH((void)run_kernel<past_shared_kernel>({}, {.grid = 1, .block = 32}, out.data(), 33),
               "use-after-poison(.|\n)*past_shared_kernel(.|\n)*shared_memory_test.cc");
  EXPECT_DEATH((void)run_kernel<past_dynamic_kernel>(
                   {}, {.grid = 1, .block = 32, .shared_bytes = 20}, out.data(), 5),
               "use-after-poison(.|\n)*past_dynamic_kernel(.|\n)*shared_memory_test.cc");
}

TEST(OutOfBoundsDeathTest, AnOverflowOfAFibersStackIsCaught) {
  std::vector<int> out(32);
  EXPECT_DEATH((void)run_kernel<deep_kernel>({}, {.grid = 1, .block = 32}, 100000, out.data()),
               "stack-overflow");
}

#endif

}  // namespace
