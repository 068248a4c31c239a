// Which walks share a step, and which capture groups.

#include "worker/combined_walks.h"

#include <gtest/gtest.h>

#include <vector>

namespace rigel {
namespace {

constexpr WalkId kFirst{0};
constexpr WalkId kSecond{1};
constexpr WalkId kThird{2};

struct Choice {
  std::int32_t max_lanes = 0;
  std::vector<WalkId> walks;

  friend bool operator==(const Choice&, const Choice&) = default;
};

Choice choose(std::vector<WalkDemand> demands, std::int32_t max_together = 100) {
  Choice choice{.max_lanes = choose_walks(demands, max_together), .walks = {}};
  for (const WalkDemand& demand : demands) {
    if (demand.is_chosen) {
      choice.walks.push_back(demand.walk);
    }
  }
  return choice;
}

WalkDemand demand(WalkId walk, std::int64_t num_rows, std::int32_t max_lanes) {
  return {.walk = walk, .num_rows = num_rows, .max_lanes = max_lanes, .combines = true};
}

TEST(CombinedWalks, T_WK_1_the_smallest_of_the_caps_holds_for_all) {
  EXPECT_EQ(choose({demand(kFirst, 3, 8), demand(kSecond, 3, 6), demand(kThird, 1, 7)}),
            (Choice{6, {kFirst, kSecond, kThird}}));
  EXPECT_EQ(choose({demand(kFirst, 3, 8), demand(kSecond, 3, 6)}, 5),
            (Choice{5, {kFirst, kSecond}}))
      << "nor has a step of several walks more lanes than it may have under its label";
  EXPECT_EQ(choose({demand(kFirst, 3, 8)}, 2), (Choice{8, {kFirst}})) << "alone it has its own cap";
}

TEST(CombinedWalks, T_WK_9_walks_join_as_long_as_the_step_has_no_fewer_rows) {
  EXPECT_EQ(choose({demand(kFirst, 5, 8), demand(kSecond, 9, 4), demand(kThird, 2, 8)}),
            (Choice{8, {kFirst, kThird}}))
      << "with the second the step would have 4 rows in place of 5";
  EXPECT_EQ(choose({demand(kFirst, 4, 8), demand(kSecond, 9, 4)}), (Choice{4, {kFirst, kSecond}}))
      << "a tie keeps more walks";
  EXPECT_EQ(choose({demand(kFirst, 1, 1), demand(kSecond, 9, 100)}), (Choice{1, {kFirst, kSecond}}))
      << "the oldest row's walk runs, although the other alone would have more rows";
}

TEST(CombinedWalks, T_WK_9_who_does_not_combine_runs_alone_in_its_turn) {
  WalkDemand alone = demand(kSecond, 9, 100);
  alone.combines = false;
  EXPECT_EQ(choose({demand(kFirst, 1, 8), alone, demand(kThird, 1, 8)}),
            (Choice{8, {kFirst, kThird}}));
  EXPECT_EQ(choose({alone, demand(kFirst, 1, 8)}), (Choice{100, {kSecond}}));
}

TEST(CombinedWalks, T_WK_9_rows_of_a_step_are_of_one_capture_group) {
  const CgKey large = CgKey::interned(1);
  StepGroups groups;
  EXPECT_TRUE(groups.admits({kFirst, large, {}}));
  groups.add({kFirst, large, {}});
  EXPECT_TRUE(groups.admits({kFirst, large, {}}));
  EXPECT_FALSE(groups.admits({kFirst, {}, {}})) << "another group of its own walk";
  EXPECT_TRUE(groups.admits({kSecond, {}, {}})) << "walks compare only what they share";
  EXPECT_FALSE(groups.admits({kSecond, {}, large}));
  groups.add({kSecond, {}, {}});
  EXPECT_FALSE(groups.admits({kSecond, large, {}}));
  groups.clear();
  EXPECT_TRUE(groups.admits({kFirst, {}, large}));
}

}  // namespace
}  // namespace rigel
