// Pages of a node's KV cache, turn by turn.

#include "tests/worker/composite_turns.h"

namespace rigel {
namespace {

class CompositePages : public testing::CompositeTurns {};

/// Two requests need their third page in the same step, and one of five is free: the newer one, whose lane is first, gets it, and
/// then loses all for the sake of the older one. Its three pages would let it come back at once; before the step was tried again it
/// must not, or this would go on for ever.
TEST_F(CompositePages, B_64_who_made_room_does_not_come_back_before_the_step_has_it) {
  std::int64_t num_offloads = 0;
  for (int lag = 0; lag < 8; ++lag) {  // one of them lets both need a page at once
    start({.num_pages = 5});
    for (int filler = 0; filler < 3; ++filler) {
      open(5, 1);  // so that the older one has the last row, and the newer one the first
    }
    const RequestHandle older = open(10, 40);
    run_until(1);
    values.clear();
    const RequestHandle newer = open(10 + lag, 40);
    ASSERT_LT(newer.row, older.row);
    run_until(0);
    EXPECT_GT(values[4].size(), 20U);
    EXPECT_EQ(values[5].size(), 40U);
    EXPECT_EQ(composite->counts().pages_in_use, 0);
    num_offloads += composite->counts().num_offloads;
  }
  EXPECT_GT(num_offloads, 0);
}

}  // namespace
}  // namespace rigel
