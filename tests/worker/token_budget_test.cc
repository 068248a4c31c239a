#include "worker/token_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace rigel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::int32_t> shares_of(const std::vector<std::int32_t>& needs, std::int32_t budget) {
  std::vector<std::int32_t> shares;
  fair_shares(needs, budget, shares);
  return shares;
}

TEST(FairShares, T_WK_12_water_filling_table) {
  EXPECT_THAT(shares_of({}, 10), IsEmpty());
  EXPECT_THAT(shares_of({5}, 10), ElementsAre(5));
  EXPECT_THAT(shares_of({50}, 10), ElementsAre(10));
  EXPECT_THAT(shares_of({2, 50, 50}, 12), ElementsAre(2, 5, 5));
  EXPECT_THAT(shares_of({50, 2, 50}, 13), ElementsAre(6, 2, 5));
  EXPECT_THAT(shares_of({9, 9, 9}, 2), ElementsAre(1, 1, 0));
  EXPECT_THAT(shares_of({3, 4, 5}, 12), ElementsAre(3, 4, 5));
  EXPECT_THAT(shares_of({3, 4}, 0), ElementsAre(0, 0));
}

TEST(FairShares, NobodyGetsMoreThanItNeedsAndTheBudgetIsUsedUp) {
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::int32_t> needs(1 + random() % 9);
    for (auto& need : needs) {
      need = static_cast<std::int32_t>(1 + random() % 30);
    }
    const auto budget = static_cast<std::int32_t>(random() % 120);
    const auto shares = shares_of(needs, budget);
    const auto total = std::accumulate(needs.begin(), needs.end(), 0);
    EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), 0), std::min(budget, total));
    for (std::size_t i = 0; i < needs.size(); ++i) {
      EXPECT_LE(shares[i], needs[i]);
      for (std::size_t j = 0; j < needs.size(); ++j) {
        // Max-min: whoever got less than it needs got at least as much as anybody, less the indivisible one.
        if (shares[i] < needs[i]) {
          EXPECT_GE(shares[i] + 1, shares[j]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace rigel
