// What a steady step costs the worker thread beside time: nothing.

#include "tensor/device.h"
#include "worker/step_bench.h"
#include "worker/step_log.h"
#include "worker/thread_costs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace rigel {
namespace {

TEST(ThreadCosts, CountTheCallingThreadAlone) {
  if (!counts_thread_costs()) {
    GTEST_SKIP() << "under a sanitizer";
  }
  const ThreadCosts before = thread_costs();
  const auto value = std::make_unique<std::vector<int>>(100);
  std::mutex mutex;
  { const std::lock_guard lock(mutex); }
  ThreadCosts other;
  std::thread([&] {
    const ThreadCosts begin = thread_costs();
    const auto own = std::make_unique<int>(1);
    other = thread_costs() - begin;
  }).join();
  const ThreadCosts spent = thread_costs() - before;
  EXPECT_GE(spent.allocations, 2);
  EXPECT_LE(spent.allocations, 6);  // the thread object is this thread's
  EXPECT_EQ(spent.locks, 1);
  EXPECT_EQ(other.allocations, 1);
  EXPECT_EQ(other.locks, 0);
}

TEST(SyscallCount, CountsSystemCallsWhileItLives) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP()
      << "the detector holds signals back, and the kernel ends a thread that blocks this one";
#endif
  const SyscallCount count;
  if (!count.works()) {
    GTEST_SKIP() << "this kernel has no syscall user dispatch";
  }
  const ThreadCosts before = thread_costs();
  EXPECT_EQ(::getppid(), ::getppid());
  {
    const CostsApart apart;
    EXPECT_GT(::getppid(), -1);
  }
  const ThreadCosts spent = thread_costs() - before;
  EXPECT_EQ(spent.syscalls, 2);
  EXPECT_EQ(spent.sleeps, 1);
}

TEST(StepLog, NobodyWaitsForStepsThatWillNotCome) {
  StepLog log(/*num_lanes=*/1, /*num_skipped=*/0, /*num_timed=*/1, /*num_counted=*/1);
  bool is_full = true;
  std::thread waiting([&] { is_full = log.wait(); });
  log.give_up();
  waiting.join();
  EXPECT_FALSE(is_full);
}

/// Rows, and steps a launch.
class SteadySteps : public ::testing::TestWithParam<std::pair<int, int>> {};

TEST_P(SteadySteps, AllocateNothingLockNothingAndCallNoKernel) {
  if (!Device::available() || Device::open({})->is_cuda()) {
    GTEST_SKIP() << "of the null device";
  }
  if (!counts_thread_costs()) {
    GTEST_SKIP() << "under a sanitizer";
  }
  const StepCost cost = measure_step({.num_rows = GetParam().first,
                                      .context = 100,
                                      .num_timed = 20,
                                      .num_counted = 1000,
                                      .steps_per_launch = GetParam().second});
  EXPECT_EQ(cost.device, "null");
  EXPECT_EQ(cost.costs.allocations, 0);
  EXPECT_EQ(cost.costs.locks, 0);
  if (cost.counts_syscalls) {
    EXPECT_EQ(cost.costs.syscalls, 0);
  }
  EXPECT_GT(cost.host_us, 0.0);
}

TEST(StepBench, InTurnTheDeviceWaitsForTheHost) {
  if (!Device::available() || Device::open({})->is_cuda()) {
    GTEST_SKIP() << "of the null device";
  }
  if (!counts_thread_costs()) {
    GTEST_SKIP() << "under a sanitizer";
  }
  for (const bool preplan : {true, false}) {
    const StepCost cost = measure_step({.num_rows = 7,
                                        .context = 100,
                                        .num_timed = 20,
                                        .num_counted = 100,
                                        .one_step_ahead = false,
                                        .preplan = preplan});
    EXPECT_GT(cost.idle_us, 0.0);
    if (counts_thread_costs()) {
      EXPECT_EQ(cost.costs.allocations, 0);
    }
  }
  const StepCost ahead =
      measure_step({.num_rows = 7, .context = 100, .num_timed = 20, .num_counted = 20});
  EXPECT_EQ(ahead.idle_us, 0.0);
}

INSTANTIATE_TEST_SUITE_P(Rows, SteadySteps,
                         ::testing::Values(std::pair(1, 1), std::pair(7, 1), std::pair(64, 1),
                                           std::pair(7, 4)));

}  // namespace
}  // namespace rigel
