#include "engine/resources/prefix_index.h"

#include "tensor/error.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace rigel {
namespace {

using Node = PrefixIndex::Node;
using Tokens = std::vector<std::int32_t>;

constexpr Epoch kAll = 1'000'000;

PageIndex page_of(int index) {
  return PageIndex{index};
}

TEST(PrefixIndexTest, TheSameTokensBehindAnotherPrefixAreAnotherPage) {
  PrefixIndex index(16, 4, 7);
  const Node first = index.insert(PrefixIndex::root(), Tokens{1, 2, 3, 4}, page_of(1));
  const Node other = index.insert(PrefixIndex::root(), Tokens{5, 6, 7, 8}, page_of(2));
  index.insert(first, Tokens{9, 9, 9, 9}, page_of(3));
  EXPECT_EQ(index.page(*index.find(first, Tokens{9, 9, 9, 9})), page_of(3));
  EXPECT_FALSE(index.find(other, Tokens{9, 9, 9, 9}).has_value());
  EXPECT_FALSE(index.find(PrefixIndex::root(), Tokens{9, 9, 9, 9}).has_value());
  EXPECT_FALSE(index.find(PrefixIndex::root(), Tokens{1, 2, 3, 5}).has_value());
  index.check();
}

TEST(PrefixIndexTest, T_KV_8_the_leaf_unused_longest_goes_first) {
  PrefixIndex index(16, 2, 0);
  const Node root = PrefixIndex::root();
  const Node trunk = index.insert(root, Tokens{0, 0}, page_of(1));
  index.insert(trunk, Tokens{1, 1}, page_of(2));
  index.insert(trunk, Tokens{2, 2}, page_of(3));
  index.insert(root, Tokens{3, 3}, page_of(4));
  for (int page = 1; page <= 4; ++page) {
    index.set_shared(page_of(page), false);
  }
  std::ignore = index.find(trunk, Tokens{1, 1});  // used again
  std::vector<PageIndex> order;
  while (const auto evicted = index.evict(kAll)) {
    order.push_back(evicted->page);
    index.check();
  }
  EXPECT_EQ(order, (std::vector{page_of(3), page_of(4), page_of(2), page_of(1)}));
  EXPECT_EQ(index.num_pages(), 0);
}

TEST(PrefixIndexTest, T_KV_8_a_page_with_another_owner_stays) {
  PrefixIndex index(8, 2, 0);
  index.insert(PrefixIndex::root(), Tokens{0, 0}, page_of(1));
  EXPECT_EQ(index.num_evictable(), 0);
  EXPECT_FALSE(index.evict(kAll).has_value());
  index.set_shared(page_of(1), false);
  EXPECT_EQ(index.num_evictable(), 1);
  index.set_shared(page_of(1), true);
  EXPECT_FALSE(index.evict(kAll).has_value());
  EXPECT_TRUE(index.contains(page_of(1)));
}

/// A later writer's child hangs below an earlier writer's page: the latter is nobody's but must stay, and is not free.
TEST(PrefixIndexTest, B_53_a_page_with_a_live_child_is_neither_evicted_nor_counted) {
  PrefixIndex index(8, 2, 0);
  const Node parent = index.insert(PrefixIndex::root(), Tokens{0, 0}, page_of(1));
  const Node child = index.insert(parent, Tokens{1, 1}, page_of(2));
  index.insert(child, Tokens{2, 2}, page_of(3));
  index.set_shared(page_of(1), false);
  index.set_shared(page_of(2), false);
  EXPECT_EQ(index.num_evictable(), 0);
  EXPECT_FALSE(index.evict(kAll).has_value());
  index.set_shared(page_of(3), false);
  EXPECT_EQ(index.num_evictable(), 3);
  EXPECT_EQ(index.evict(kAll)->page, page_of(3));
  EXPECT_EQ(index.evict(kAll)->page, page_of(2));
}

TEST(PrefixIndexTest, APageThatAStepInFlightReadsIsNotEvicted) {
  PrefixIndex index(8, 2, 0);
  index.insert(PrefixIndex::root(), Tokens{0, 0}, page_of(1));
  index.note_touch(page_of(1), 5);
  index.set_shared(page_of(1), false);
  EXPECT_FALSE(index.evict(4).has_value());
  EXPECT_EQ(index.evict(5)->last_touch, 5U);
}

TEST(PrefixIndexTest, AnEvictedNodeIsKnownToBeGone) {
  PrefixIndex index(8, 2, 0);
  const Node node = index.insert(PrefixIndex::root(), Tokens{0, 0}, page_of(1));
  index.set_shared(page_of(1), false);
  std::ignore = index.evict(kAll);
  EXPECT_FALSE(index.is_valid(node));
  EXPECT_THROW(std::ignore = index.find(node, Tokens{1, 1}), CheckError);
  const Node reused = index.insert(PrefixIndex::root(), Tokens{4, 4}, page_of(2));
  EXPECT_TRUE(index.is_valid(reused));
  EXPECT_FALSE(index.is_valid(node));
  EXPECT_TRUE(index.is_valid(PrefixIndex::root()));
}

/// Against a map from whole prefixes to pages, with owners that come and go.
TEST(PrefixIndexTest, B_53_random_trees_agree_with_a_map) {
  constexpr int kPages = 40;
  PrefixIndex index(kPages, 2, 3);
  std::map<Tokens, PageIndex> known;
  std::vector<PageIndex> free_pages;
  for (int page = kPages - 1; page > 0; --page) {
    free_pages.push_back(page_of(page));
  }
  std::map<PageIndex, bool> shared;
  std::mt19937 random(5);
  for (int round = 0; round < 6000; ++round) {
    if (random() % 3 != 0) {
      Tokens prefix;
      Node node = PrefixIndex::root();
      const int depth = 1 + static_cast<int>(random() % 4);
      for (int level = 0; level < depth; ++level) {
        const Tokens tokens{static_cast<std::int32_t>(random() % 3), 0};
        prefix.insert(prefix.end(), tokens.begin(), tokens.end());
        const auto found = index.find(node, tokens);
        ASSERT_EQ(found.has_value(), known.contains(prefix));
        if (found) {
          ASSERT_EQ(index.page(*found), known[prefix]);
          node = *found;
        } else if (free_pages.empty()) {
          break;
        } else {
          node = index.insert(node, tokens, free_pages.back());
          known[prefix] = free_pages.back();
          shared[free_pages.back()] = true;
          free_pages.pop_back();
        }
      }
    } else if (!shared.empty() && random() % 2 == 0) {
      auto entry = shared.begin();
      std::advance(entry, random() % shared.size());
      entry->second = random() % 4 == 0;
      index.set_shared(entry->first, entry->second);
    } else if (const auto evicted = index.evict(kAll)) {
      ASSERT_FALSE(shared[evicted->page]);
      const auto gone = std::ranges::find_if(
          known, [&](const auto& entry) { return entry.second == evicted->page; });
      for (const auto& [prefix, page] : known) {
        ASSERT_FALSE(prefix.size() > gone->first.size() &&
                     std::equal(gone->first.begin(), gone->first.end(), prefix.begin()))
            << "a page went before the one below it";
      }
      known.erase(gone);
      shared.erase(evicted->page);
      free_pages.push_back(evicted->page);
    }
    index.check();
  }
  for (auto& [page, is_shared] : shared) {
    index.set_shared(page, false);
  }
  EXPECT_EQ(index.num_evictable(), index.num_pages());
}

}  // namespace
}  // namespace rigel
