// ThreadSanitizer as the race checker of kernels: each CUDA thread is a fiber of its own, and only barriers and warp
// operations order them. In other builds these kernels run for their results alone.

#include "tests/simt/run_kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#if defined(__SANITIZE_THREAD__)

namespace {

using simt::Options;
using simt_test::all_orders;
using simt_test::run_kernel;

std::atomic<int> num_reports = 0;

}  // namespace

// The detector calls this at each report. Each test takes the ones it expects out of the count.
extern "C" void __tsan_on_report(void*) {
  num_reports.fetch_add(1);
}
extern "C" const char* __tsan_default_options() {
  return "suppress_equal_addresses=0:suppress_equal_stacks=0:exitcode=0";
}

namespace {

// Exit codes can't tell expected reports from others, so the count of the whole program is checked here.
class NoUnexpectedReports : public testing::Environment {
 public:
  void TearDown() override { EXPECT_EQ(num_reports.load(), 0) << "unexpected data races"; }
};
const testing::Environment* const kNoUnexpectedReports =
    testing::AddGlobalTestEnvironment(new NoUnexpectedReports);

template <class Run>
int reports_of(Run run) {
  const int before = num_reports.load();
  run();
  const int reports = num_reports.load() - before;
  num_reports.store(before);
  return reports;
}

constexpr int kTwoWarps = 64;

enum class Fault { kNone, kMissingBarrier, kMissingTrailingBarrier };

template <Fault kFault>
__global__ void neighbour_kernel(int* out) {
  SIMT_SHARED(int, tile, kTwoWarps);
  const int t = static_cast<int>(threadIdx.x);
  for (int round = 0; round < 3; ++round) {
    tile[t] = t + round;
    if constexpr (kFault != Fault::kMissingBarrier) {
      __syncthreads();
    }
    out[t] = tile[(t + 1) % kTwoWarps];
    if constexpr (kFault != Fault::kMissingTrailingBarrier) {
      __syncthreads();
    }
  }
}

template <bool kWithSync>
__global__ void warp_neighbour_kernel(int* out) {
  SIMT_SHARED(int, tile, kTwoWarps);
  const int t = static_cast<int>(threadIdx.x);
  tile[t] = t;
  if constexpr (kWithSync) {
    __syncwarp();
  }
  out[t] = tile[t ^ 1];
}

// Thread 0 writes, all read: in ascending order the result is right even without the barrier.
template <bool kWithBarrier>
__global__ void broadcast_kernel(int* out) {
  SIMT_SHARED(int, value, 1);
  if (threadIdx.x == 0) {
    value[0] = 42;
  }
  if constexpr (kWithBarrier) {
    __syncthreads();
  }
  out[threadIdx.x] = value[0];
}

__global__ void same_cell_kernel(int* cell) {
  if (threadIdx.x == 0) {
    *cell = static_cast<int>(blockIdx.x);
  }
}

__global__ void own_cell_kernel(int* cells) {
  cells[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}

template <auto K>
int reports_in(const Options& options, int num_blocks = 1) {
  std::vector<int> out(static_cast<std::size_t>(kTwoWarps * num_blocks), 0);
  return reports_of([&] {
    const simt::Status status = run_kernel<K>(
        options, {.grid = static_cast<unsigned>(num_blocks), .block = kTwoWarps}, out.data());
    EXPECT_TRUE(status.ok()) << status.message();
  });
}

TEST(Race, AMissingBarrierIsReportedInEveryOrder) {
  for (const Options& options : all_orders()) {
    EXPECT_GT(reports_in<neighbour_kernel<Fault::kMissingBarrier>>(options), 0);
    EXPECT_GT(reports_in<neighbour_kernel<Fault::kMissingTrailingBarrier>>(options), 0);
    EXPECT_EQ(reports_in<neighbour_kernel<Fault::kNone>>(options), 0);
  }
}

TEST(Race, WarpSynchronousTextIsReported) {
  for (const Options& options : all_orders()) {
    EXPECT_GT(reports_in<warp_neighbour_kernel<false>>(options), 0);
    EXPECT_EQ(reports_in<warp_neighbour_kernel<true>>(options), 0);
  }
}

TEST(Race, ABroadcastWithoutBarrierIsReportedThoughItsResultIsRight) {
  for (const Options& options : all_orders()) {
    EXPECT_GT(reports_in<broadcast_kernel<false>>(options), 0);
    EXPECT_EQ(reports_in<broadcast_kernel<true>>(options), 0);
  }
}

TEST(Race, BlocksThatShareACellAreReportedWhenAsked) {
  for (Options options : all_orders()) {
    EXPECT_EQ(reports_in<own_cell_kernel>(options, 8), 0);
    options.race_blocks = true;
    EXPECT_GT(reports_in<same_cell_kernel>(options, 8), 0);
    EXPECT_EQ(reports_in<own_cell_kernel>(options, 8), 0);
    EXPECT_EQ(reports_in<neighbour_kernel<Fault::kNone>>(options), 0);
  }
}

TEST(Race, TwoLaunchesInARowAreOrdered) {
  int cell = 0;
  simt::Pool pool(2);
  simt::Executor executor(pool, {});
  const int reports = reports_of([&] {
    for (int round = 0; round < 4; ++round) {
      EXPECT_TRUE(simt::bind_kernel<same_cell_kernel>("same_cell", {.grid = 1, .block = kTwoWarps},
                                                      &cell)(executor)
                      .ok());
    }
  });
  EXPECT_EQ(reports, 0);
}

}  // namespace

#endif
