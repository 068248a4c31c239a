#include "worker/token_rows.h"

#include <gtest/gtest.h>

namespace rigel {
namespace {

std::unique_ptr<NodeInputs> row_of(std::int64_t length) {
  auto row = std::make_unique<ArNodeInputs>();
  row->input_seq_len = length;
  return row;
}

TEST(TokenRows, PartsFollowEachOtherAndStayInTheirRow) {
  TokenRows rows;
  rows.add(row_of(5), WalkId{1});
  EXPECT_TRUE(rows.next().inputs->is_final_chunk());
  rows.launched(3);
  rows.add(row_of(2), WalkId{2});
  EXPECT_EQ(rows.num_left(), 4);
  EXPECT_EQ(rows.next_start(), 3);
  EXPECT_EQ(rows.next_length(), 2) << "of the first row";
  EXPECT_FALSE(rows.next().inputs->is_final_chunk()) << "more has come behind it";
  EXPECT_THROW(rows.launched(3), std::logic_error);
  rows.launched(2);
  EXPECT_EQ(rows.next().walk, WalkId{2});
  EXPECT_EQ(rows.next().inputs->chunk_start, 5);
  EXPECT_TRUE(rows.next().inputs->is_final_chunk());
  rows.launched(2);
  EXPECT_EQ(rows.num_left(), 0);
}

TEST(TokenRows, ARestartRunsEverythingAgain) {
  TokenRows rows;
  rows.add(row_of(5), WalkId{1});
  rows.launched(5);
  rows.restart();
  rows.add(row_of(2), WalkId{1});
  EXPECT_EQ(rows.num_left(), 7);
  EXPECT_EQ(rows.next_length(), 5);
  rows.launched(5);
  EXPECT_EQ(rows.next_length(), 2);
}

TEST(TokenRows, ARowHasTokens) {
  TokenRows rows;
  EXPECT_THROW(rows.add(row_of(0), WalkId{}), std::logic_error);
}

}  // namespace
}  // namespace rigel
