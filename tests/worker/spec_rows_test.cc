#include "worker/spec_rows.h"

#include "tensor/error.h"
#include "worker/thread_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace rigel {
namespace {

using ::testing::ElementsAre;

constexpr SignalId kText{1};
constexpr SignalId kState{2};

RequestHandle handle(std::int32_t row) {
  return {row, 7};
}

std::vector<RequestHandle> handles(std::int32_t count) {
  std::vector<RequestHandle> result;
  for (std::int32_t row = 0; row < count; ++row) {
    result.push_back(handle(row));
  }
  return result;
}

std::vector<std::int32_t> order(const DeferredRowInputs& rows) {
  std::vector<std::int32_t> result;
  rows.for_each([&](RequestHandle live) { result.push_back(live.row); });
  return result;
}

std::vector<SignalId> names(const DeferredRowInputs& rows, RequestHandle which) {
  std::vector<SignalId> result;
  for (const auto& [signal, tensors] : rows.row(which)) {
    EXPECT_TRUE(tensors.empty());
    result.push_back(signal);
  }
  return result;
}

SignalMap with_token(std::int32_t token) {
  SignalMap inputs;
  inputs.assign(kText, {Tensor::copy_of(std::span<const std::int32_t>(&token, 1))});
  return inputs;
}

TEST(DeferredRowInputs, T_SR_1_size_order_and_contains_build_no_row) {
  const DeferredRowInputs rows(std::vector{handle(5), handle(1), handle(3)}, std::vector{kText});
  EXPECT_EQ(rows.size(), 3U);
  EXPECT_THAT(order(rows), ElementsAre(5, 1, 3));
  EXPECT_TRUE(rows.contains(handle(1)));
  EXPECT_FALSE(rows.contains(handle(2)));
  EXPECT_FALSE(rows.contains({1, 8})) << "another generation";
  EXPECT_FALSE(rows.contains({-1, 7}));
  EXPECT_THAT(names(rows, handle(3)), ElementsAre(kText));
  EXPECT_EQ(rows.num_built(), 0U);
}

TEST(DeferredRowInputs, T_SR_2_signals_reach_rows_that_were_read_but_not_assigned_ones) {
  DeferredRowInputs rows(handles(4), std::vector{kText});
  const auto read = rows.row(handle(0));
  SignalMap& edited = rows.row_mut(handle(1));
  edited.assign(kText, {});
  edited.assign(SignalId{9}, {});
  rows.assign(handle(2), with_token(4));
  rows.assign(handle(3), {});
  rows.set_signals(std::vector{kState});
  EXPECT_NE(read.find(kState), nullptr);
  EXPECT_EQ(read.find(kText), nullptr);
  EXPECT_THAT(names(rows, handle(1)), ElementsAre(kState)) << "edits are lost";
  EXPECT_EQ(edited.find(SignalId{9}), nullptr) << "in place";
  EXPECT_EQ(rows.row(handle(2)).find(kText)->size(), 1U);
  EXPECT_EQ(rows.row(handle(2)).find(kState), nullptr);
  EXPECT_EQ(rows.row(handle(3)).size(), 0U) << "assigned, though empty";
}

TEST(DeferredRowInputs, T_SR_2_a_read_row_shows_a_later_edit_and_assignment) {
  DeferredRowInputs rows(handles(1), std::vector{kText});
  const auto read = rows.row(handle(0));
  rows.row_mut(handle(0)).assign(kState, {});
  EXPECT_NE(read.find(kState), nullptr);
  EXPECT_EQ(&rows.row_mut(handle(0)), &rows.row_mut(handle(0))) << "built once";
  rows.assign(handle(0), {});
  EXPECT_EQ(read.size(), 0U);
}

TEST(DeferredRowInputs, T_SR_3_assigned_rows_keep_their_place_and_fresh_ones_go_to_the_end) {
  DeferredRowInputs rows(std::vector{handle(2), handle(0)}, std::vector{kText});
  rows.assign(handle(7), with_token(1));
  rows.assign(handle(4), with_token(2));
  rows.assign(handle(2), with_token(3));
  EXPECT_THAT(order(rows), ElementsAre(2, 0, 7, 4));
  EXPECT_EQ(rows.size(), 4U);
  rows.erase(handle(2));
  rows.assign(handle(2), with_token(5));
  EXPECT_THAT(order(rows), ElementsAre(0, 7, 4, 2)) << "erased and assigned: at the end";
}

TEST(DeferredRowInputs, T_SR_3_a_row_that_is_filled_in_place_is_assigned) {
  DeferredRowInputs rows(std::vector{handle(1)}, std::vector{kText});
  EXPECT_TRUE(rows.assign(handle(1)).empty());
  rows.assign(handle(2))[kState];
  rows.set_signals(std::vector{kText, kState});
  EXPECT_TRUE(names(rows, handle(1)).empty());
  EXPECT_THAT(names(rows, handle(2)), ElementsAre(kState));
  EXPECT_THAT(order(rows), ElementsAre(1, 2));
}

TEST(DeferredRowInputs, T_SR_4_an_erased_row_is_gone) {
  DeferredRowInputs rows(handles(3), std::vector{kText});
  rows.assign(handle(2), with_token(1));
  rows.erase(handle(1));
  EXPECT_THROW(static_cast<void>(rows.row(handle(1))), CheckError);
  EXPECT_THROW(static_cast<void>(rows.row_mut(handle(1))), CheckError);
  EXPECT_THROW(rows.erase(handle(1)), CheckError);
  EXPECT_THROW(rows.erase(handle(9)), CheckError);
  EXPECT_FALSE(rows.try_erase(handle(9)));
  EXPECT_FALSE(rows.contains(handle(1)));
  EXPECT_THAT(order(rows), ElementsAre(0, 2));
  EXPECT_TRUE(rows.try_erase(handle(2)));
  EXPECT_EQ(rows.size(), 1U);
  rows.set_signals(std::vector{kState});
  EXPECT_THROW(static_cast<void>(rows.row(handle(1))), CheckError) << "not built again";
}

TEST(DeferredRowInputs, T_SR_5_materialized_rows_are_independent) {
  DeferredRowInputs rows(handles(3), std::vector{kText});
  rows.row_mut(handle(1)).assign(kState, {});
  rows.assign(handle(2), with_token(1));
  RequestOutputs plain;
  rows.materialize(plain);
  ASSERT_EQ(plain.size(), 3U);
  std::int32_t token = 4;
  plain.find(handle(0))->find(kText)->push_back(
      Tensor::copy_of(std::span<const std::int32_t>(&token, 1)));
  plain.find(handle(2))->erase(kText);
  EXPECT_TRUE(plain.find(handle(1))->find(kText)->empty());
  EXPECT_NE(plain.find(handle(1))->find(kState), nullptr) << "edits are kept";
  EXPECT_TRUE(rows.row(handle(0)).find(kText)->empty());
  EXPECT_EQ(rows.row(handle(2)).find(kText)->size(), 1U);
}

TEST(DeferredRowInputs, T_SR_6_lists_of_two_edited_rows_are_apart) {
  DeferredRowInputs rows(handles(3), std::vector{kText});
  std::int32_t token = 4;
  rows.row_mut(handle(0)).find(kText)->push_back(
      Tensor::copy_of(std::span<const std::int32_t>(&token, 1)));
  EXPECT_TRUE(rows.row_mut(handle(1)).find(kText)->empty());
  EXPECT_TRUE(rows.row(handle(2)).find(kText)->empty());
}

TEST(DeferredRowInputs, T_SR_7_no_signals_make_empty_rows) {
  DeferredRowInputs rows(handles(2));
  EXPECT_EQ(rows.row(handle(0)).size(), 0U);
  rows.set_signals(std::vector{kText});
  rows.set_signals({});
  EXPECT_EQ(rows.row(handle(1)).size(), 0U);
}

TEST(DeferredRowInputs, T_SR_8_what_comes_twice_is_refused) {
  EXPECT_THROW(DeferredRowInputs(std::vector{handle(1), handle(2), handle(1)}), CheckError);
  EXPECT_THROW(DeferredRowInputs(std::vector{handle(1), RequestHandle{1, 8}}), CheckError);
  EXPECT_THROW(DeferredRowInputs(std::vector{RequestHandle{-1, 0}}), CheckError);
  DeferredRowInputs rows(handles(1));
  EXPECT_THROW(rows.set_signals(std::vector{kText, kText}), CheckError);
}

TEST(DeferredRowInputs, T_SR_9_a_thousand_rows_need_no_memory_once_warm) {
  const std::vector<RequestHandle> all = handles(1000);
  const std::vector<SignalId> signals = {kText, kState};
  DeferredRowInputs rows;
  const auto use = [&] {
    rows.reset(all);
    rows.set_signals(signals);
    rows.erase(handle(500));
    static_cast<void>(rows.row_mut(handle(3)));
    rows.assign(handle(1000))[kState];
  };
  use();
  use();
  const std::int64_t before = thread_costs().allocations;
  use();
  EXPECT_EQ(thread_costs().allocations - before, 0);
  EXPECT_EQ(rows.size(), 1000U);
  EXPECT_EQ(rows.num_built(), 2U);
}

class LoopCounterSnapshots : public ::testing::Test {
 protected:
  static constexpr LoopId kDecode{3};
  static constexpr LoopId kOuter{4};

  void start(std::initializer_list<std::int32_t> counts) {
    for (const std::int32_t count : counts) {
      RequestInfo& info = infos.emplace_back();
      if (count >= 0) {
        info.loop_counters.set(kDecode, count);
      }
    }
    for (const RequestInfo& info : infos) {
      shared.push_back(&info);
    }
  }
  std::vector<std::int32_t> take(std::optional<LoopId> loop, std::int64_t num_next) {
    loop_counter_snapshots(shared, loop, num_next, snapshots);
    std::vector<std::int32_t> counts;
    for (const InputMetadata& snapshot : snapshots) {
      counts.push_back(snapshot.loop_counters.count(kDecode));
      EXPECT_TRUE(snapshot.stream_chunks.empty());
    }
    return counts;
  }

  std::deque<RequestInfo> infos;
  std::vector<const RequestInfo*> shared;
  std::vector<InputMetadata> snapshots;
};

TEST_F(LoopCounterSnapshots, T_LC_1_continuing_rows_are_one_ahead_and_fresh_ones_are_not) {
  start({5, 8, 2});
  EXPECT_THAT(take(kDecode, 2), ElementsAre(6, 9, 2));
  EXPECT_THAT(take(kDecode, 0), ElementsAre(5, 8, 2));
  EXPECT_THAT(take(kDecode, 9), ElementsAre(6, 9, 3)) << "more than there are: all";
  EXPECT_THROW(take(kDecode, -1), CheckError);
}

TEST_F(LoopCounterSnapshots, T_LC_2_and_B_10_a_step_routed_later_does_not_move_them) {
  start({5});
  take(kDecode, 1);
  infos[0].loop_counters.increment(kDecode);
  EXPECT_EQ(snapshots[0].loop_counters.count(kDecode), 6);
}

TEST_F(LoopCounterSnapshots, T_LC_3_changing_one_changes_nothing_shared) {
  start({5, 5});
  shared[1] = shared[0];
  take(kDecode, 1);
  snapshots[0].loop_counters.set(kDecode, 70);
  EXPECT_EQ(infos[0].loop_counters.count(kDecode), 5);
  EXPECT_EQ(snapshots[1].loop_counters.count(kDecode), 5);
}

TEST_F(LoopCounterSnapshots, T_LC_4_a_loop_that_has_not_run_is_at_1) {
  start({-1});
  EXPECT_THAT(take(kDecode, 1), ElementsAre(1));
}

TEST_F(LoopCounterSnapshots, T_LC_5_without_a_loop_they_are_plain_copies) {
  start({5, 6});
  EXPECT_THAT(take(std::nullopt, 2), ElementsAre(5, 6));
}

TEST_F(LoopCounterSnapshots, T_LC_6_of_nested_loops_one_advances) {
  start({5});
  infos[0].loop_counters.set(kOuter, 2);
  take(kDecode, 1);
  EXPECT_EQ(snapshots[0].loop_counters.count(kOuter), 2);
  EXPECT_EQ(snapshots[0].loop_counters.count(kDecode), 6);
}

TEST_F(LoopCounterSnapshots, T_LC_7_no_rows_make_none) {
  snapshots.resize(3);
  EXPECT_TRUE(take(kDecode, 1).empty());
}

TEST_F(LoopCounterSnapshots, T_LC_8_they_equal_a_plain_loop_over_the_rows) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    infos.clear();
    shared.clear();
    const auto num_rows = random() % 20;
    for (std::size_t row = 0; row < num_rows; ++row) {
      RequestInfo& info = infos.emplace_back();
      for (std::uint16_t loop = 0; loop < 4; ++loop) {
        if (random() % 2 == 0) {
          info.loop_counters.set(LoopId{loop}, static_cast<std::int32_t>(random() % 9));
        }
      }
    }
    for (const RequestInfo& info : infos) {
      shared.push_back(&info);
    }
    const LoopId advanced{static_cast<std::uint16_t>(random() % 4)};
    const std::size_t num_next = random() % 25;
    loop_counter_snapshots(shared, advanced, static_cast<std::int64_t>(num_next), snapshots);
    for (std::size_t row = 0; row < num_rows; ++row) {
      for (std::uint16_t loop = 0; loop < 4; ++loop) {
        const std::int32_t expected = infos[row].loop_counters.count(LoopId{loop}) +
                                      (row < num_next && LoopId{loop} == advanced ? 1 : 0);
        ASSERT_EQ(snapshots[row].loop_counters.count(LoopId{loop}), expected);
      }
    }
  }
}

}  // namespace
}  // namespace rigel
