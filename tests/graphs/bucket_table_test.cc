#include "graphs/bucket_table.h"

#include "graphs/slot_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace rigel {
namespace {

using ::testing::ElementsAre;

constexpr std::int32_t kDecode = 1;
constexpr std::int32_t kPrefill = 2;
constexpr std::int32_t kAlias = 7;

/// Decode with 1, 2 and 4 lanes of one token, and prefill of up to 4 lanes in 64 or 128 tokens.
class BucketTableTest : public ::testing::Test {
 protected:
  BucketTableTest() {
    for (const std::int32_t lanes : {4, 1, 2}) {
      add({.walk = kDecode, .num_lanes = lanes, .num_tokens = lanes}, BucketKind::kBatched);
    }
    for (const std::int64_t tokens : {128, 64}) {
      add({.walk = kPrefill, .num_lanes = 4, .num_tokens = tokens}, BucketKind::kPacked);
    }
    for (std::size_t bucket = 0; bucket < table.size(); ++bucket) {
      table.enable(bucket);
    }
  }
  std::size_t add(const GraphBucket& bucket, BucketKind kind) {
    return table.add(bucket, kind, kAliases);
  }
  /// Lanes and tokens of the bucket that serves; (0, 0): none.
  [[nodiscard]] std::pair<std::int32_t, std::int64_t> found(const GraphDemand& demand) const {
    const auto bucket = table.find(demand);
    return bucket ? std::pair(table[*bucket].num_lanes, table[*bucket].num_tokens)
                  : std::pair<std::int32_t, std::int64_t>(0, 0);
  }
  static GraphDemand decode(std::int32_t lanes, std::int32_t key = 0) {
    return {.walk = kDecode, .num_lanes = lanes, .num_tokens = lanes, .key = key};
  }
  static GraphDemand prefill(std::int32_t lanes, std::int64_t tokens) {
    return {.walk = kPrefill, .num_lanes = lanes, .num_tokens = tokens};
  }

  static constexpr std::array<std::int32_t, 1> kAliases{kAlias};
  BucketTable table;
};

using Found = std::pair<std::int32_t, std::int64_t>;

TEST_F(BucketTableTest, T_CG_1_the_smallest_bucket_that_holds_the_step_serves_it) {
  EXPECT_EQ(found(decode(1)), Found(1, 1));
  EXPECT_EQ(found(decode(2)), Found(2, 2));
  EXPECT_EQ(found(decode(3)), Found(4, 4)) << "padded";
  EXPECT_EQ(found(decode(5)), Found(0, 0)) << "too large";
  EXPECT_EQ(found(prefill(1, 64)), Found(4, 64));
  EXPECT_EQ(found(prefill(3, 65)), Found(4, 128)) << "padded";
  EXPECT_EQ(found(prefill(3, 129)), Found(0, 0)) << "too many tokens";
  EXPECT_EQ(found(prefill(5, 10)), Found(0, 0)) << "too many lanes";
}

TEST_F(BucketTableTest, T_CG_1_walk_and_key_must_be_the_same) {
  EXPECT_EQ(found(decode(2, /*key=*/3)), Found(0, 0));
  EXPECT_EQ(found({.walk = 9, .num_lanes = 1, .num_tokens = 1}), Found(0, 0));
  table.enable(
      add({.walk = kDecode, .num_lanes = 8, .num_tokens = 8, .key = 3}, BucketKind::kBatched));
  EXPECT_EQ(found(decode(2, /*key=*/3)), Found(8, 8));
  EXPECT_EQ(found(decode(2)), Found(2, 2));
}

TEST_F(BucketTableTest, B_45_an_alias_is_served_by_the_bucket_of_the_captured_walk) {
  const auto bucket = table.find({.walk = kAlias, .num_lanes = 2, .num_tokens = 2});
  ASSERT_TRUE(bucket.has_value());
  EXPECT_EQ(table[*bucket], (GraphBucket{.walk = kDecode, .num_lanes = 2, .num_tokens = 2}));
}

TEST_F(BucketTableTest, T_CG_1_before_the_inputs_are_known_only_a_batched_bucket_serves) {
  EXPECT_EQ(found({.walk = kDecode, .num_lanes = 3}), Found(4, 4));
  EXPECT_EQ(found({.walk = kPrefill, .num_lanes = 3}), Found(0, 0));
}

TEST_F(BucketTableTest, T_CG_1_lanes_that_bring_other_lengths_are_not_a_batched_buckets) {
  EXPECT_EQ(found({.walk = kDecode, .num_lanes = 2, .num_tokens = 3}), Found(0, 0));
  EXPECT_EQ(found({.walk = kDecode, .num_lanes = 1, .num_tokens = 4}), Found(0, 0));
}

TEST_F(BucketTableTest, T_CG_6_a_bucket_that_is_not_enabled_serves_nobody) {
  add({.walk = kDecode, .num_lanes = 3, .num_tokens = 3}, BucketKind::kBatched);
  EXPECT_EQ(found(decode(3)), Found(4, 4));
}

TEST_F(BucketTableTest, T_CG_2_captures_go_from_the_largest_to_the_smallest) {
  std::vector<std::int64_t> tokens;
  for (const std::size_t bucket : table.capture_order()) {
    tokens.push_back(table[bucket].num_tokens);
  }
  EXPECT_THAT(tokens, ElementsAre(128, 64, 4, 2, 1));
}

TEST_F(BucketTableTest, T_CG_1_a_bucket_that_cannot_be_is_refused) {
  EXPECT_THROW(add({.walk = kDecode, .num_lanes = 2, .num_tokens = 2}, BucketKind::kBatched),
               CheckError);
  EXPECT_THROW(add({.walk = kDecode, .num_lanes = 0, .num_tokens = 2}, BucketKind::kBatched),
               CheckError);
  EXPECT_THROW(add({.walk = kDecode, .num_lanes = 3, .num_tokens = 4}, BucketKind::kBatched),
               CheckError);
}

TEST(SlotRing, B_01_steps_of_different_buckets_take_the_slots_in_turn) {
  SlotRing ring(2);
  for (int turn = 0; turn < 3; ++turn) {
    for (std::int32_t expected = 0; expected < 2; ++expected) {
      const std::int32_t slot = ring.take();
      EXPECT_EQ(slot, expected);
      ring.give_back(slot, /*used=*/true);
    }
  }
}

TEST(SlotRing, T_EN_9_a_lease_that_nothing_ran_under_does_not_move_the_ring) {
  SlotRing ring(2);
  ring.give_back(ring.take(), /*used=*/true);
  ring.give_back(ring.take(), /*used=*/false);
  EXPECT_EQ(ring.take(), 1) << "slot 0 may be on the device still";
}

TEST(SlotRing, B_01_a_slot_has_one_lease_at_a_time) {
  SlotRing ring(1);
  std::ignore = ring.take();
  EXPECT_THROW(std::ignore = ring.take(), CheckError);
}

}  // namespace
}  // namespace rigel
