#include "simt/pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace {

using simt::Pool;

TEST(Pool, RunsEachItemOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    Pool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    for (const int items : {0, 1, 2, 3, 7, 64, 1000, 70000, 200001}) {
      std::vector<int> counts(static_cast<std::size_t>(items), 0);
      pool.parallel_for(items, [&](int item) { ++counts[static_cast<std::size_t>(item)]; });
      EXPECT_THAT(counts, testing::Each(1)) << threads << " threads, " << items << " items";
    }
  }
}

TEST(Pool, ALoopsWritesAreVisibleToTheNextOne) {
  Pool pool(4);
  std::vector<long> values(64);
  std::vector<long> next(64);
  std::iota(values.begin(), values.end(), 0L);
  for (int round = 0; round < 20000; ++round) {
    // Each item reads what another thread may have written in the loop before.
    pool.parallel_for(64, [&](int item) {
      next[static_cast<std::size_t>(item)] = values[static_cast<std::size_t>(63 - item)] + 1;
    });
    std::swap(values, next);
  }
  EXPECT_EQ(values[0], 20000);
  EXPECT_EQ(values[63], 20000 + 63);
}

TEST(Pool, WakesThreadsThatWentToSleep) {
  Pool pool(2);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than any spin
    std::atomic<int> inside = 0;
    // Both items must be in flight at once, so the sleeper has to come.
    pool.parallel_for(2, [&](int) {
      inside.fetch_add(1);
      while (inside.load() < 2) {
        std::this_thread::yield();
      }
    });
    EXPECT_EQ(inside.load(), 2);
  }
}

TEST(Pool, ALoopInsideALoopRunsOnItsCaller) {
  Pool pool(3);
  std::vector<int> counts(9 * 9, 0);
  pool.parallel_for(9, [&](int outer) {
    const auto caller = std::this_thread::get_id();
    pool.parallel_for(9, [&](int inner) {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      ++counts[static_cast<std::size_t>(outer * 9 + inner)];
    });
  });
  EXPECT_THAT(counts, testing::Each(1));
}

TEST(Pool, LoopsOfSeveralCallersAllFinish) {
  Pool pool(3);
  std::atomic<long> total = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        pool.parallel_for(10, [&](int item) { total.fetch_add(item); });
      }
    });
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
  EXPECT_EQ(total.load(), 4L * 500 * 45);
}

}  // namespace
