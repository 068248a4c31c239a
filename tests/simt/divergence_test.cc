// Planted faults: each must be reported with kernel, file, line, thread and block, and must leave the executor usable.

#include "tests/simt/run_kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace {

using simt::Options;
using simt::Order;
using simt::Status;
using simt_test::all_orders;
using simt_test::run_kernel;
using testing::AllOf;
using testing::HasSubstr;

// Lines of the collectives below, so that messages can be checked to the line.
constexpr int kFirstBarrierLine = __LINE__ + 4;
__global__ void early_return_kernel(int first_gone, int* touched) {
  if (static_cast<int>(threadIdx.x) < first_gone) {
    touched[blockIdx.x * blockDim.x + threadIdx.x] = 1;
    __syncthreads();
  }
}

constexpr int kThenLine = __LINE__ + 4;
constexpr int kElseLine = __LINE__ + 5;
__global__ void split_barrier_kernel() {
  if (threadIdx.x < 64) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

constexpr int kWarpReturnLine = __LINE__ + 3;
__global__ void warp_return_kernel(unsigned mask) {
  if (threadIdx.x % 32 < 16) {
    __syncwarp(mask);
  }
}

constexpr int kOutsideMaskLine = __LINE__ + 2;
__global__ void outside_mask_kernel(unsigned mask) {
  __syncwarp(mask);
}

__global__ void operation_mismatch_kernel(int* out) {
  if (threadIdx.x % 2 == 0) {
    out[threadIdx.x] = simt::shfl_xor(1, 1);
  } else {
    out[threadIdx.x] = static_cast<int>(__ballot_sync(0xffffffffu, 1));
  }
}

__global__ void unordered_kernel(unsigned num_ordered) {
  if (threadIdx.x < num_ordered) {
    simt::wait_for_predecessor();
  }
}

__global__ void source_outside_mask_kernel(int* out) {
  if (threadIdx.x < 16) {
    out[threadIdx.x] = simt::shfl_idx(1, 20, 0xffffu);
  }
}

__global__ void deadlock_kernel(int* out) {
  if (threadIdx.x == 3) {
    __syncthreads();
  } else {
    out[threadIdx.x] = simt::warp_sum(1);
  }
}

__global__ void disjoint_masks_kernel(int* out) {
  if (threadIdx.x % 32 < 8) {
    out[threadIdx.x] = simt::shfl_xor(static_cast<int>(threadIdx.x), 1, 0xffu);
  } else {
    out[threadIdx.x] = simt::shfl_xor(static_cast<int>(threadIdx.x), 2, 0xffffff00u);
  }
}

__global__ void double_kernel(int* out) {
  out[threadIdx.x] = 2 * static_cast<int>(threadIdx.x);
}

std::string at(int line) {
  return "divergence_test.cc:" + std::to_string(line);
}

TEST(Divergence, AReturnBeforeABarrierOfOthersIsReportedWithItsLine) {
  for (const Options& options : all_orders()) {
    std::vector<int> touched(8 * 128);
    const Status status =
        run_kernel<early_return_kernel>(options, {.grid = 1, .block = 128}, 100, touched.data());
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("kernel probe: divergence: thread ("),
                      HasSubstr(at(kFirstBarrierLine)), HasSubstr("[block (0,0,0)]")));
  }
}

TEST(Divergence, NamesTheReturnedThreadAndTheNumberThatWaits) {
  std::vector<int> touched(8 * 128);
  const Status status = run_kernel<early_return_kernel>(
      {.order = Order::kAscending}, {.grid = 1, .block = 128}, 100, touched.data());
  EXPECT_STREQ(status.message(),
               ("kernel probe: divergence: thread (100,0,0) returned from the kernel while 100 "
                "threads wait at __syncthreads " +
                at(kFirstBarrierLine) + " [block (0,0,0)]")
                   .c_str());
}

TEST(Divergence, WithoutStrictExitReturnedThreadsDoNotCount) {
  for (Options options : all_orders()) {
    options.strict_exit = false;
    std::vector<int> touched(8 * 128);
    const Status status =
        run_kernel<early_return_kernel>(options, {.grid = 2, .block = 128}, 100, touched.data());
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(std::count(touched.begin(), touched.end(), 1), 200);
    EXPECT_TRUE((run_kernel<warp_return_kernel>(options, {.grid = 1, .block = 64}, ~0u).ok()));
  }
}

TEST(Divergence, BarriersAtDifferentLinesAreReportedWithBoth) {
  for (const Options& options : all_orders()) {
    const Status status = run_kernel<split_barrier_kernel>(options, {.grid = 1, .block = 128});
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.message(), AllOf(HasSubstr(at(kThenLine)), HasSubstr(at(kElseLine)),
                                        HasSubstr("is at __syncthreads")));
  }
}

TEST(Divergence, AReturnWhileLanesOfTheWarpWaitIsReported) {
  for (const Options& options : all_orders()) {
    const Status status = run_kernel<warp_return_kernel>(options, {.grid = 1, .block = 64}, ~0u);
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.message(), AllOf(HasSubstr("__syncwarp"), HasSubstr(at(kWarpReturnLine))));
  }
  const Status ascending = run_kernel<warp_return_kernel>({}, {.grid = 1, .block = 64}, ~0u);
  EXPECT_THAT(
      ascending.message(),
      HasSubstr("thread (16,0,0) returned from the kernel while warp 0 lanes 0000ffff wait"));
}

TEST(Divergence, ALaneOutsideItsMaskIsReported) {
  for (const Options& options : all_orders()) {
    const Status status =
        run_kernel<outside_mask_kernel>(options, {.grid = 1, .block = 32}, 0xfffffff7u);
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.message(), AllOf(HasSubstr("bad mask"), HasSubstr("lane 3"),
                                        HasSubstr("fffffff7"), HasSubstr(at(kOutsideMaskLine))));
  }
}

TEST(Divergence, AMaskNamingALaneThatDoesNotExistIsReported) {
  const Status status = run_kernel<outside_mask_kernel>({}, {.grid = 1, .block = 48}, ~0u);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.message(), AllOf(HasSubstr("bad mask"), HasSubstr("of warp 1"),
                                      HasSubstr("ffff0000 have returned or do not exist")));
}

TEST(Divergence, DifferentOperationsOfOneWarpAreReported) {
  for (const Options& options : all_orders()) {
    std::vector<int> out(32);
    const Status status =
        run_kernel<operation_mismatch_kernel>(options, {.grid = 1, .block = 32}, out.data());
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("warp operation mismatch"), HasSubstr("shfl_xor"),
                      HasSubstr("__ballot_sync"), HasSubstr("divergence_test.cc:")));
  }
}

TEST(Divergence, AShuffleFromALaneOutsideTheMaskIsReported) {
  for (const Options& options : all_orders()) {
    std::vector<int> out(32);
    const Status status =
        run_kernel<source_outside_mask_kernel>(options, {.grid = 1, .block = 32}, out.data());
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.message(), AllOf(HasSubstr("reads lane 20 in shfl_idx"),
                                        HasSubstr("not in the mask 0000ffff")));
  }
}

TEST(Divergence, ABlockInWhichNobodyCanRunIsADeadlockNotAHang) {
  for (const Options& options : all_orders()) {
    std::vector<int> out(32);
    const Status status =
        run_kernel<deadlock_kernel>(options, {.grid = 1, .block = 32}, out.data());
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.message(), AllOf(HasSubstr("deadlock: no thread can run"),
                                        HasSubstr("1 threads wait at __syncthreads"),
                                        HasSubstr("warp 0 lanes fffffff7 wait in warp_sum<int>"),
                                        HasSubstr("for lanes 00000008")));
  }
}

TEST(Divergence, DisjointMasksInTwoBranchesAreLegal) {
  for (const Options& options : all_orders()) {
    std::vector<int> out(32, -1);
    const Status status =
        run_kernel<disjoint_masks_kernel>(options, {.grid = 1, .block = 32}, out.data());
    ASSERT_TRUE(status.ok()) << status.message();
    for (int lane = 0; lane < 32; ++lane) {
      EXPECT_EQ(out[static_cast<std::size_t>(lane)], lane < 8 ? lane ^ 1 : lane ^ 2);
    }
  }
}

TEST(Divergence, AProgrammaticLaunchWhoseThreadsDoNotWaitIsReported) {
  const simt::LaunchPlan ordered = {.grid = 2, .block = 64};
  const simt::LaunchPlan programmatic = {.grid = 2, .block = 64, .programmatic = true};
  for (const Options& options : all_orders()) {
    EXPECT_TRUE(run_kernel<unordered_kernel>(options, programmatic, 64u).ok());
    EXPECT_TRUE(run_kernel<unordered_kernel>(options, ordered, 61u).ok());
    EXPECT_THAT(
        run_kernel<unordered_kernel>(options, programmatic, 61u).message(),
        AllOf(HasSubstr("kernel probe"), HasSubstr("3 threads of the block do not begin with "
                                                   "wait_for_predecessor")));
  }
}

TEST(Divergence, TheNextLaunchAfterAFaultWorks) {
  simt::Pool pool(2);
  simt::Executor executor(pool, {});
#if defined(__SANITIZE_THREAD__)
  constexpr int kNumRounds = 5;  // the detector takes half a second a round
#else
  constexpr int kNumRounds = 50;
#endif
  for (int round = 0; round < kNumRounds; ++round) {
    std::vector<int> touched(8 * 128);
    EXPECT_FALSE(simt::bind_kernel<early_return_kernel>("faulty", {.grid = 8, .block = 128}, 100,
                                                        touched.data())(executor)
                     .ok());
    std::vector<int> out(256, -1);
    const Status status =
        simt::bind_kernel<double_kernel>("double", {.grid = 1, .block = 256}, out.data())(executor);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(out[255], 510);
  }
}

TEST(Divergence, TheFaultyBlockIsNamed) {
  std::vector<int> touched(8 * 128);
  const Status status = run_kernel<early_return_kernel>(
      {.order = Order::kDescending}, {.grid = dim3(2, 3, 4), .block = 128}, 100, touched.data());
  EXPECT_THAT(status.message(), HasSubstr("[block (1,2,3)]"));
}

}  // namespace
