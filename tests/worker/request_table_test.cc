#include "worker/request_table.h"

#include "tensor/error.h"

#include <gtest/gtest.h>

namespace rigel {
namespace {

RequestState& accept(RequestTable& table, std::uint64_t id) {
  auto request = std::make_unique<RequestState>();
  request->id = RequestId{id};
  return table.accept(std::move(request));
}

TEST(RequestTable, T_WK_13_a_row_reused_at_once_does_not_answer_to_its_earlier_owner) {
  RequestTable table(1);
  RequestState& first = accept(table, 1);
  table.assign_row(first);
  const RequestHandle stale = first.handle();
  table.release(first, /*last_touch=*/0);
  RequestState& second = accept(table, 2);
  table.assign_row(second);
  EXPECT_EQ(second.handle().row, stale.row);
  EXPECT_EQ(table.find(stale), nullptr);
  EXPECT_EQ(table.find(second.handle()), &second);
}

TEST(RequestTable, C_7_no_handle_comes_back_with_its_row) {
  RequestTable table(1);
  std::vector<RequestHandle> earlier;
  for (std::uint64_t id = 1; id <= 200; ++id) {
    RequestState& request = accept(table, id);
    table.assign_row(request);
    for (const RequestHandle handle : earlier) {
      ASSERT_EQ(table.find(handle), nullptr);
    }
    earlier.push_back(request.handle());
    table.release(request, /*last_touch=*/0);
  }
}

TEST(RequestTable, ARowHasNoTokensOnTheirWayForItsNextOwner) {
  RequestTable table(1);
  RequestState& first = accept(table, 1);
  EXPECT_EQ(table.num_pending(first), 0) << "without a row";
  table.assign_row(first);
  table.num_pending(first.handle()) = 2;
  EXPECT_EQ(table.num_launched_tokens(first), 2);
  table.release(first, /*last_touch=*/0);
  EXPECT_EQ(table.num_released(), 1U);
  RequestState& next = accept(table, 2);
  table.assign_row(next);
  EXPECT_EQ(table.num_pending(next), 0);
}

TEST(RequestTable, ARequestStaysWhereItIsAndLeavesNothingToTheNext) {
  RequestTable table(1);
  RequestState& first = accept(table, 1);
  first.tokens = {1, 2, 3};
  first.num_computed = 2;
  RequestState& kept = accept(table, 2);
  table.release(first, /*last_touch=*/0);
  for (std::uint64_t id = 3; id < 400; ++id) {
    const RequestState& next = accept(table, id);
    ASSERT_TRUE(next.tokens.empty());
    ASSERT_EQ(next.num_computed, 0);
    ASSERT_TRUE(next.handle().is_padding());
  }
  EXPECT_EQ(table.find(RequestId{2}), &kept);
  EXPECT_EQ(kept.id, RequestId{2});
  EXPECT_EQ(table.find(RequestId{1}), nullptr);
  EXPECT_THROW(accept(table, 2), CheckError);
  EXPECT_EQ(table.size(), 398U);
}

TEST(RequestTable, RowsRunOutAndComeBack) {
  RequestTable table(2);
  RequestState& a = accept(table, 1);
  RequestState& b = accept(table, 2);
  RequestState& c = accept(table, 3);
  table.assign_row(a);
  table.assign_row(b);
  EXPECT_FALSE(table.has_free_row());
  EXPECT_THROW(table.assign_row(c), CheckError);
  table.release(a, /*last_touch=*/0);
  table.assign_row(c);
  EXPECT_EQ(table.size(), 2U);
}

TEST(RequestTable, C_7_a_row_with_a_lane_in_flight_waits_for_its_step) {
  RequestTable table(1);
  RequestState& first = accept(table, 1);
  table.assign_row(first);
  const RequestHandle stale = first.handle();
  table.collect(/*completed=*/4);
  table.release(first, /*last_touch=*/5);
  EXPECT_EQ(table.find(stale), nullptr);
  EXPECT_FALSE(table.has_free_row());
  table.collect(5);
  EXPECT_TRUE(table.has_free_row());
}

TEST(RequestTable, RequestsAreFoundByIdUntilTheyEnd) {
  RequestTable table(1);
  RequestState& request = accept(table, 9);
  EXPECT_EQ(table.find(RequestId{9}), &request);
  table.release(request, /*last_touch=*/0);
  EXPECT_EQ(table.find(RequestId{9}), nullptr);
  EXPECT_EQ(table.find(RequestHandle{}), nullptr);
}

}  // namespace
}  // namespace rigel
