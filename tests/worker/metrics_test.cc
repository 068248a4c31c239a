#include "worker/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rigel {
namespace {

using ::testing::ElementsAre;

TEST(HistogramRecorder, AnObservationOnABoundCountsBelowIt) {
  constexpr std::array kBounds = {1.0, 2.0};
  HistogramRecorder recorder(kBounds);
  for (const double value : {0.5, 1.0, 1.5, 2.0, 7.0}) {
    recorder.observe(value);
  }
  const Histogram histogram = recorder.snapshot();
  EXPECT_THAT(histogram.counts, ElementsAre(2U, 2U, 1U));
  EXPECT_EQ(histogram.count, 5U);
  EXPECT_DOUBLE_EQ(histogram.sum, 12.0);
}

TEST(WorkerMetrics, UsageIsAShareOfAllPages) {
  WorkerMetrics metrics;
  EXPECT_EQ(metrics.snapshot().kv_cache_usage, 0.0);
  metrics.pages_total.set(8);
  metrics.pages_in_use.set(2);
  EXPECT_DOUBLE_EQ(metrics.snapshot().kv_cache_usage, 0.25);
}

}  // namespace
}  // namespace rigel
