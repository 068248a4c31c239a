#include "engine/contract/batched_output.h"

#include "tensor/error.h"
#include "tests/engine/device_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rigel {
namespace {

using ::testing::ElementsAre;
using testing::host_ids;
using testing::host_values;

constexpr RequestHandle kA{0, 1};
constexpr RequestHandle kB{1, 1};
constexpr RequestHandle kC{2, 1};
constexpr SignalId kToken{1};
constexpr SignalId kLatent{2};

BatchedModelOutput output_of(RequestHandle handle, SignalId signal, std::int32_t value) {
  BatchedModelOutput output;
  output.requests()[handle].assign(signal, {host_ids({value})});
  return output;
}

std::int32_t value_of(const BatchedModelOutput& output, RequestHandle handle, SignalId signal) {
  return host_values(output.get(handle)->find(signal)->front()).front();
}

BatchedModelOutput with_stop_rows(RequestHandle handle, std::int32_t value) {
  BatchedModelOutput output = output_of(handle, kToken, value);
  output.set_row_handles({&handle, 1});
  output.set_stop_buffers({{kToken, host_ids({value})}});
  return output;
}

TEST(BatchedModelOutputTest, T_BO_1_coerce_sorts_requests_from_packed_names) {
  std::vector<BatchedModelOutput::MixedEntry> entries;
  SignalMap signals;
  signals.assign(kToken, {host_ids({4})});
  entries.emplace_back(RequestOutputs::Entry{kB, signals});
  entries.emplace_back(std::pair<std::string, Tensor>{"__hidden__", host_ids({5})});
  const auto mixed = BatchedModelOutput::coerce(std::move(entries));
  EXPECT_EQ(value_of(mixed, kB, kToken), 4);
  EXPECT_THAT(host_values(*mixed.get("__hidden__")), ElementsAre(5));
  const auto same = BatchedModelOutput::coerce(mixed);
  EXPECT_EQ(value_of(same, kB, kToken), 4);

  EXPECT_TRUE(BatchedModelOutput::is_packed_name("__x__"));
  for (const char* name : {"", "__", "___", "____", "__x_", "x__", "hidden"}) {
    EXPECT_FALSE(BatchedModelOutput::is_packed_name(name)) << name;
  }
  entries.clear();
  entries.emplace_back(std::pair<std::string, Tensor>{"hidden", host_ids({5})});
  EXPECT_THROW(std::ignore = BatchedModelOutput::coerce(std::move(entries)), CheckError);
}

TEST(BatchedModelOutputTest, T_BO_2_requests_and_packed_names_are_looked_up_apart) {
  BatchedModelOutput output = output_of(kA, kToken, 1);
  output.set_packed("__x__", host_ids({2}));
  output.set_packed("__x__", host_ids({3}));
  EXPECT_EQ(value_of(output, kA, kToken), 1);
  EXPECT_THAT(host_values(*output.get("__x__")), ElementsAre(3));
  EXPECT_EQ(output.get(kB), nullptr);
  EXPECT_EQ(output.get(RequestHandle{0, 2}), nullptr) << "another owner of the row";
  EXPECT_EQ(output.get("__y__"), nullptr);
}

TEST(BatchedModelOutputTest, T_BO_3_pop_takes_the_request_and_leaves_the_rows) {
  BatchedModelOutput output = output_of(kA, kToken, 1);
  output.requests()[kB].assign(kToken, {host_ids({2})});
  output.requests()[RequestHandle{-1, 0}].assign(kToken, {host_ids({3})});
  output.push_row_handle(kA);
  output.add_rows(kToken, {});
  const auto popped = output.pop(kA);
  ASSERT_TRUE(popped.has_value());
  EXPECT_THAT(host_values(popped->find(kToken)->front()), ElementsAre(1));
  EXPECT_FALSE(output.pop(kA).has_value());
  EXPECT_EQ(value_of(output, kB, kToken), 2) << "the others are still found";
  EXPECT_EQ(value_of(output, RequestHandle{-1, 0}, kToken), 3);
  EXPECT_THAT(output.row_handles(), ElementsAre(kA));
  EXPECT_EQ(output.row_outputs().size(), 1u);
}

class BatchedOutputCloneTest : public testing::DeviceTensorTest {};

TEST_F(BatchedOutputCloneTest, T_BO_4_a_clone_is_not_overwritten_by_the_next_replay) {
  const Tensor rows = device_ids({1, 2, 3});
  BatchedModelOutput output;
  output.set_stop_buffers({{kToken, rows}});
  output.add_rows(kToken, rows.device_view());
  const auto stops = output.clone_check_stop_buffers(stream(), *allocator);
  const auto copies = output.clone_row_outputs(3, stream(), *allocator);
  write(rows, {7, 8, 9});
  EXPECT_THAT(values(std::get<Tensor>(stops->front().second)), ElementsAre(1, 2, 3));
  EXPECT_THAT(values(copies.front().second), ElementsAre(1, 2, 3));
}

TEST_F(BatchedOutputCloneTest, T_BO_5_no_stop_buffers_are_not_absent_stop_buffers) {
  BatchedModelOutput output = output_of(kA, kToken, 1);
  EXPECT_FALSE(output.clone_check_stop_buffers(stream(), *allocator).has_value());
  EXPECT_EQ(std::get<const RequestOutputs*>(output.get_check_stop_input()), &output.requests());
  output.set_stop_buffers({});
  ASSERT_TRUE(output.clone_check_stop_buffers(stream(), *allocator).has_value());
  EXPECT_TRUE(std::get<const StopBuffers*>(output.get_check_stop_input())->empty());
  output.reset();
  EXPECT_EQ(output.stop_rows(), StopRows::kNone);
  EXPECT_EQ(output.get(kA), nullptr);
}

TEST_F(BatchedOutputCloneTest, T_BO_6_nested_signals_are_cloned_tensor_by_tensor) {
  const Tensor nested = device_ids({1});
  SignalMap signals;
  signals.assign(kLatent, {nested, host_ids({2}), Tensor()});
  BatchedModelOutput output;
  output.set_stop_buffers({{kToken, signals}});
  const auto stops = output.clone_check_stop_buffers(stream(), *allocator);
  write(nested, {9});
  const TensorList& copies = *std::get<SignalMap>(stops->front().second).find(kLatent);
  ASSERT_EQ(copies.size(), 3u);
  EXPECT_THAT(values(copies[0]), ElementsAre(1));
  EXPECT_THAT(host_values(copies[1]), ElementsAre(2));
  EXPECT_FALSE(copies[2].defined());
}

TEST_F(BatchedOutputCloneTest, T_BO_7_padding_rows_are_not_copied) {
  const Tensor rows = device_ids({1, 2, 3, 4, 5, 6}).reshape({3, 2});
  const Tensor scalar = device_ids({7}).select(0, 0);
  BatchedModelOutput output;
  EXPECT_TRUE(output.clone_row_outputs(2, stream(), *allocator).empty());
  output.add_rows(kToken, rows.device_view());
  output.add_rows(kLatent, scalar.device_view());
  allocator->num_elements = 0;
  const auto copies = output.clone_row_outputs(2, stream(), *allocator);
  EXPECT_EQ(allocator->num_elements, 5);
  EXPECT_THAT(values(copies[0].second), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(copies[1].second.rank(), 0);
  EXPECT_THAT(values(copies[1].second), ElementsAre(7));
  EXPECT_EQ(output.clone_row_outputs(8, stream(), *allocator)[0].second.dim(0), 3);
}

TEST(BatchedModelOutputUpdate, B_04_a_third_forward_does_not_bring_stop_rows_back) {
  BatchedModelOutput output = with_stop_rows(kA, 1);
  output.update(with_stop_rows(kB, 2));
  output.update(with_stop_rows(kC, 3));
  EXPECT_NE(output.stop_rows(), StopRows::kSingle) << "its rows are those of request C alone";
  EXPECT_TRUE(std::holds_alternative<const RequestOutputs*>(output.get_check_stop_input()));
}

TEST(BatchedModelOutputUpdate, T_BO_8_the_other_side_wins_by_name) {
  BatchedModelOutput output = output_of(kA, kToken, 1);
  output.set_packed("__x__", host_ids({1}));
  BatchedModelOutput other = output_of(kA, kToken, 2);
  other.requests()[kB].assign(kToken, {host_ids({3})});
  other.set_packed("__x__", host_ids({4}));
  output.update(other);
  output.update(output);
  EXPECT_EQ(value_of(output, kA, kToken), 2);
  EXPECT_EQ(value_of(output, kB, kToken), 3);
  EXPECT_THAT(host_values(*output.get("__x__")), ElementsAre(4));
  EXPECT_EQ(output.stop_rows(), StopRows::kNone);
}

TEST(BatchedModelOutputUpdate, T_BO_8_stop_rows_of_one_side_are_kept_with_their_requests) {
  BatchedModelOutput first = output_of(kA, kToken, 1);
  first.update(with_stop_rows(kB, 2));
  EXPECT_EQ(first.stop_rows(), StopRows::kSingle);
  EXPECT_THAT(first.row_handles(), ElementsAre(kB));
  first.update(output_of(kC, kToken, 3));
  EXPECT_EQ(first.stop_rows(), StopRows::kSingle);
  EXPECT_THAT(first.row_handles(), ElementsAre(kB));
}

TEST(BatchedModelOutputUpdate, T_BO_8_two_sides_with_stop_rows_are_a_conflict_for_good) {
  BatchedModelOutput output = with_stop_rows(kA, 1);
  output.update(with_stop_rows(kB, 2));
  EXPECT_EQ(output.stop_rows(), StopRows::kConflict);
  output.update(with_stop_rows(kC, 3));
  EXPECT_EQ(output.stop_rows(), StopRows::kConflict);
  EXPECT_TRUE(output.row_handles().empty());
  const auto input = output.get_check_stop_input();
  EXPECT_EQ(std::get<const RequestOutputs*>(input)->size(), 3u) << "every request is checked";

  BatchedModelOutput fresh;
  fresh.update(output);
  fresh.update(with_stop_rows(kC, 3));
  EXPECT_EQ(fresh.stop_rows(), StopRows::kConflict) << "a conflict joins as one";
  fresh.reset();
  fresh.update(with_stop_rows(kC, 3));
  EXPECT_EQ(fresh.stop_rows(), StopRows::kSingle);
}

TEST(BatchedModelOutputUpdate,
     T_BO_8_rows_of_other_requests_are_a_conflict_and_of_the_same_are_not) {
  const auto with_rows = [](RequestHandle handle, SignalId signal) {
    BatchedModelOutput output;
    output.push_row_handle(handle);
    output.add_rows(signal, {});
    return output;
  };
  BatchedModelOutput same = with_rows(kA, kToken);
  same.update(with_rows(kA, kLatent));
  EXPECT_EQ(same.row_outputs().size(), 2u);
  EXPECT_EQ(same.stop_rows(), StopRows::kNone);
  same.update(with_rows(kB, kToken));
  EXPECT_EQ(same.stop_rows(), StopRows::kConflict);
  EXPECT_TRUE(same.row_outputs().empty());
  same.update(with_rows(kB, kToken));
  EXPECT_TRUE(same.row_outputs().empty()) << "they would cover request B only";

  BatchedModelOutput both = with_stop_rows(kA, 1);
  both.add_rows(kToken, {});
  both.update(with_stop_rows(kA, 2));
  EXPECT_EQ(both.stop_rows(), StopRows::kConflict) << "equal lists or not";
  EXPECT_EQ(both.row_outputs().size(), 1u);
  EXPECT_THAT(both.row_handles(), ElementsAre(kA));
}

}  // namespace
}  // namespace rigel
