#include "engine/resources/page_arena.h"

#include "tensor/error.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace rigel {
namespace {

TEST(PageArena, TheSinkIsNeverHandedOut) {
  PageArena arena(4);
  EXPECT_EQ(arena.capacity(), 3);
  for (int page = 0; page < 3; ++page) {
    EXPECT_NE(arena.acquire().value(), kSinkPage);
  }
  EXPECT_FALSE(arena.acquire().has_value());
  EXPECT_THROW(arena.release(kSinkPage, 0), CheckError);
}

TEST(PageArena, APageReleasedAtAStepIsNotReusedBeforeThatStepHasCompleted) {
  PageArena arena(2);
  const PageIndex page = arena.acquire().value();
  arena.release(page, /*last_touch=*/7);
  EXPECT_FALSE(arena.acquire().has_value());
  arena.collect(6);
  EXPECT_FALSE(arena.acquire().has_value());
  arena.collect(7);
  EXPECT_EQ(arena.acquire().value(), page);
}

TEST(PageArena, ASharedPageStaysUntilItsLastOwnerLetsGo) {
  PageArena arena(2);
  const PageIndex page = arena.acquire().value();
  arena.retain(page);
  arena.release(page, 1);
  EXPECT_EQ(arena.num_retiring(), 0);
  arena.release(page, 2);
  EXPECT_EQ(arena.num_retiring(), 1);
  EXPECT_THROW(arena.release(page, 3), CheckError);
  EXPECT_THROW(arena.retain(page), CheckError);
}

TEST(PageArena, ASharedPageWaitsForTheLatestStepOfAnyOfItsOwners) {
  PageArena arena(2);
  const PageIndex page = arena.acquire().value();
  arena.retain(page);
  arena.release(page, /*last_touch=*/9);
  arena.release(page, /*last_touch=*/3);
  arena.collect(8);
  EXPECT_FALSE(arena.acquire().has_value());
  arena.collect(9);
  EXPECT_EQ(arena.acquire().value(), page);
}

TEST(PageArena, PagesAreConservedUnderRandomUse) {
  PageArena arena(17);
  std::mt19937 random(3);
  std::multimap<int, PageIndex> owned;
  Epoch step = 1;
  for (int round = 0; round < 5000; ++round) {
    const auto choice = random() % 4;
    if (choice == 0) {
      if (const auto page = arena.acquire()) {
        owned.emplace(static_cast<int>(random() % 1000), *page);
      }
    } else if (choice == 1 && !owned.empty()) {
      arena.release(owned.begin()->second, step);
      owned.erase(owned.begin());
    } else if (choice == 2 && !owned.empty()) {
      const PageIndex page = std::prev(owned.end())->second;
      arena.retain(page);
      owned.emplace(static_cast<int>(random() % 1000), page);
    } else {
      ++step;
      arena.collect(step - 1 - random() % 2);
    }
    arena.check_conserved();
  }
  for (const auto& [key, page] : owned) {
    arena.release(page, step);
  }
  arena.collect(step);
  EXPECT_EQ(arena.num_free(), arena.capacity());
}

}  // namespace
}  // namespace rigel
