#include "engine/contract/node_inputs.h"

#include "tensor/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace rigel {
namespace {

using ::testing::ElementsAre;

Tensor ids_of(std::vector<std::int32_t> ids) {
  return Tensor::copy_of(std::span<const std::int32_t>(ids));
}

std::vector<std::int32_t> values_of(const Tensor& tensor) {
  const auto span = tensor.host_view().span<std::int32_t>();
  return {span.begin(), span.end()};
}

ArNodeInputs row_of(std::int32_t num_tokens) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(num_tokens));
  std::iota(ids.begin(), ids.end(), 100);
  ArNodeInputs row;
  row.input_ids = ids_of(ids);
  row.input_seq_len = num_tokens;
  return row;
}

class RowGuidance final : public Opaque {
 public:
  explicit RowGuidance(bool is_empty) : is_empty_(is_empty) {}
  bool empty() const override { return is_empty_; }

 private:
  bool is_empty_;
};

TEST(SplitArInputs, T_SP_1_ids_are_cut) {
  const auto part = split_ar_inputs(row_of(5), 1, 4);
  EXPECT_EQ(part->input_seq_len, 3);
  EXPECT_THAT(values_of(part->input_ids), ElementsAre(101, 102, 103));
  EXPECT_EQ(part->chunk_start, 1);
  EXPECT_EQ(part->chunk_total, 5);
  EXPECT_FALSE(part->is_final_chunk());
}

TEST(SplitArInputs, T_SP_2_embeddings_are_cut_by_token) {
  ArNodeInputs row;
  row.input_embeds = ids_of({0, 1, 10, 11, 20, 21}).reshape({3, 2});
  row.input_seq_len = 3;
  const auto part = split_ar_inputs(row, 1, 3);
  EXPECT_EQ(part->input_embeds.shape(), (Shape{2, 2}));
  EXPECT_THAT(values_of(part->input_embeds), ElementsAre(10, 11, 20, 21));
  EXPECT_FALSE(part->input_ids.defined());
}

TEST(SplitArInputs, B_65_only_the_last_part_of_an_input_is_the_one_to_sample_after) {
  const ArNodeInputs row = row_of(5);
  EXPECT_TRUE(row.is_final_chunk()) << "a whole input";
  EXPECT_FALSE(split_ar_inputs(row, 0, 4)->is_final_chunk());
  EXPECT_TRUE(split_ar_inputs(row, 4, 5)->is_final_chunk());
  const auto tail = split_ar_inputs(row, 2, 5);
  EXPECT_TRUE(tail->is_final_chunk()) << "what a prefix cache left";
  EXPECT_FALSE(split_ar_inputs(*tail, 0, 2)->is_final_chunk());
  EXPECT_TRUE(split_ar_inputs(*tail, 2, 3)->is_final_chunk());
}

TEST(SplitArInputs, T_SP_3_positions_are_cut_along_their_last_dimension) {
  ArNodeInputs row = row_of(3);
  row.custom_positions = ids_of({0, 1, 2, 10, 11, 12, 20, 21, 22}).reshape({3, 3});
  const auto part = split_ar_inputs(row, 1, 3);
  EXPECT_EQ(part->custom_positions.shape(), (Shape{3, 2}));
  EXPECT_THAT(values_of(part->custom_positions.select(0, 2)), ElementsAre(21, 22));
}

TEST(SplitArInputs, T_SP_4_positions_of_every_label_are_cut) {
  ArNodeInputs row = row_of(3);
  row.label_positions = {{LabelId{0}, ids_of({0, 1, 2})},
                         {LabelId{1}, ids_of({5, 6, 7, 8, 9, 10}).reshape({2, 3})}};
  const auto part = split_ar_inputs(row, 1, 3);
  ASSERT_EQ(part->label_positions.size(), 2u);
  EXPECT_THAT(values_of(part->label_positions[0].second), ElementsAre(1, 2));
  EXPECT_EQ(part->label_positions[1].first, LabelId{1});
  EXPECT_THAT(values_of(part->label_positions[1].second.select(0, 1)), ElementsAre(9, 10));
}

TEST(SplitArInputs, T_SP_5_positions_of_another_length_are_refused) {
  ArNodeInputs row = row_of(3);
  row.custom_positions = ids_of({0, 1});
  EXPECT_THROW(std::ignore = split_ar_inputs(row, 0, 1), CheckError);
}

TEST(SplitArInputs, T_SP_6_what_only_the_model_can_cut_is_refused_by_name) {
  ArNodeInputs with_tensor = row_of(2);
  with_tensor.tensor_inputs.emplace_back("pixels", ids_of({1}));
  ArNodeInputs with_argument = row_of(2);
  with_argument.kwargs.emplace_back("scale", 1.5);
  ArNodeInputs with_info = row_of(2);
  with_info.resource_step_info = std::make_shared<RowGuidance>(false);
  for (const auto& [row, field] :
       {std::pair<const ArNodeInputs*, const char*>{&with_tensor, "tensor_inputs"},
        {&with_argument, "kwargs"},
        {&with_info, "resource_step_info"}}) {
    try {
      std::ignore = split_ar_inputs(*row, 0, 1);
      FAIL() << field << " was cut";
    } catch (const CheckError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(field));
    }
  }
}

TEST(SplitArInputs, T_SP_7_empty_step_info_passes) {
  ArNodeInputs row = row_of(2);
  row.resource_step_info = std::make_shared<RowGuidance>(true);
  EXPECT_EQ(split_ar_inputs(row, 0, 1)->input_seq_len, 1);
}

TEST(SplitArInputs, T_SP_8_parts_share_the_memory_of_the_whole) {
  const ArNodeInputs row = row_of(4);
  const auto part = split_ar_inputs(row, 2, 4);
  EXPECT_TRUE(part->input_ids.shares_storage_with(row.input_ids));
}

TEST(SplitArInputs, T_SP_9_the_parts_joined_are_the_whole_for_random_cuts) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    const auto num_tokens = static_cast<std::int32_t>(1 + random() % 40);
    const ArNodeInputs row = row_of(num_tokens);
    std::vector<std::int32_t> joined;
    std::int64_t start = 0;
    while (start < num_tokens) {
      const auto end =
          start + 1 +
          static_cast<std::int64_t>(random() % static_cast<unsigned>(num_tokens - start));
      const auto part = split_ar_inputs(row, start, end);
      const auto values = values_of(part->input_ids);
      joined.insert(joined.end(), values.begin(), values.end());
      EXPECT_EQ(part->is_final_chunk(), end == num_tokens);
      start = end;
    }
    EXPECT_EQ(joined, values_of(row.input_ids));
  }
}

TEST(SplitArInputs, T_SP_10_a_range_outside_the_row_is_refused) {
  const ArNodeInputs row = row_of(3);
  for (const auto& [start, end] : {std::pair{-1, 1}, {1, 1}, {2, 1}, {0, 4}}) {
    EXPECT_THROW(std::ignore = split_ar_inputs(row, start, end), CheckError);
  }
}

}  // namespace
}  // namespace rigel
