#include "simt/executor.h"

#include "simt/launch.h"
#include "simt/simt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace {

using simt::LaunchPlan;
using simt::Options;
using simt::Order;
using simt::Pool;
using simt::Status;

template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) sum_rows_kernel(const float* x, float* y, int width) {
  SIMT_SHARED(float, red, BLOCK / 32);
  float sum = 0.0f;
  for (int i = threadIdx.x; i < width; i += BLOCK) {
    sum += x[blockIdx.x * width + i];
  }
  sum = simt::block_sum<BLOCK>(sum, red);
  if (threadIdx.x == 0) {
    y[blockIdx.x] = sum;
  }
}

TEST(Executor, SumsRowsInEveryOrderAndOnEveryNumberOfThreads) {
  constexpr int kRows = 37;
  constexpr int kWidth = 1000;
  std::vector<float> x(kRows * kWidth);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(i % 17);
  }
  for (const int threads : {1, 2, 4}) {
    Pool pool(threads);
    for (const Order order : {Order::kAscending, Order::kDescending, Order::kRandom}) {
      simt::Executor executor(pool, {.order = order});
      std::vector<float> y(kRows, -1.0f);
      const auto task = simt::bind_kernel<sum_rows_kernel<128>>(
          "sum_rows", {.grid = kRows, .block = 128}, x.data(), y.data(), kWidth);
      const Status status = task(executor);
      ASSERT_TRUE(status.ok()) << status.message();
      for (int row = 0; row < kRows; ++row) {
        float expected = 0.0f;
        for (int i = 0; i < kWidth; ++i) {
          expected += x[static_cast<std::size_t>(row * kWidth + i)];
        }
        EXPECT_EQ(y[static_cast<std::size_t>(row)], expected);
      }
    }
  }
}

}  // namespace
