#include "engine/contract/collate.h"

#include "tensor/error.h"
#include "tests/engine/device_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace rigel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::host_ids;
using testing::host_values;

class Guidance final : public Opaque {};

/// A model's own row, as a model would write it.
class ImageRow final : public ArNodeInputs {
 public:
  Tensor pixels;

  template <class Row, class Visit>
  static void for_each_field(Row& row, const Visit& visit) {
    ArNodeInputs::for_each_field(row, visit);
    visit("pixels", row.pixels);
  }

 protected:
  std::unique_ptr<NodeInputs> make_clone(const FieldDetacher& detach) const override {
    return clone_row(*this, detach);
  }
};

class RowThatForgetsItsClone final : public ArNodeInputs {};

class NodeInputsCloneTest : public testing::DeviceTensorTest {};

TEST_F(NodeInputsCloneTest, T_NI_1_nothing_written_to_a_clone_reaches_the_row) {
  ArNodeInputs row;
  row.input_ids = device_ids({1, 2, 3});
  row.tensor_inputs.emplace_back("mask", device_ids({4}));
  row.kwargs.emplace_back("nested", InputDict{{"list", InputList{device_ids({5}), 7}}});
  row.label_positions.emplace_back(LabelId{1}, host_ids({6}));
  const auto clone = row.clone(stream(), *allocator);
  auto& copy = dynamic_cast<ArNodeInputs&>(*clone);
  auto& list = std::get<InputList>(std::get<InputDict>(copy.kwargs[0].second)[0].second);
  EXPECT_EQ(std::get<std::int64_t>(list[1]), 7);

  write(copy.input_ids, {9, 9, 9});
  write(copy.tensor_inputs[0].second, {9});
  write(std::get<Tensor>(list[0]), {9});
  copy.label_positions[0].second.host_view().span<std::int32_t>()[0] = 9;
  EXPECT_THAT(values(row.input_ids), ElementsAre(1, 2, 3));
  EXPECT_THAT(values(row.tensor_inputs[0].second), ElementsAre(4));
  const auto& source = std::get<InputList>(std::get<InputDict>(row.kwargs[0].second)[0].second);
  EXPECT_THAT(values(std::get<Tensor>(source[0])), ElementsAre(5));
  EXPECT_THAT(host_values(row.label_positions[0].second), ElementsAre(6));
}

TEST_F(NodeInputsCloneTest, T_NI_2_a_clone_is_of_the_rows_own_class) {
  ImageRow row;
  row.pixels = device_ids({1});
  const auto clone = row.clone(stream(), *allocator);
  const auto* copy = dynamic_cast<const ImageRow*>(clone.get());
  ASSERT_NE(copy, nullptr);
  EXPECT_FALSE(copy->pixels.shares_storage_with(row.pixels));
  EXPECT_THROW(std::ignore = RowThatForgetsItsClone().clone(stream(), *allocator), CheckError);
}

TEST_F(NodeInputsCloneTest, T_NI_3_opaque_objects_are_shared) {
  NodeInputs row;
  row.resource_step_info = std::make_shared<Guidance>();
  row.kwargs.emplace_back("object", std::shared_ptr<const Opaque>(row.resource_step_info));
  const auto copy = row.clone(stream(), *allocator);
  EXPECT_EQ(copy->resource_step_info, row.resource_step_info);
  EXPECT_EQ(std::get<std::shared_ptr<const Opaque>>(copy->kwargs[0].second),
            row.resource_step_info);
}

TEST_F(NodeInputsCloneTest, T_NI_4_an_empty_row_gives_an_empty_row) {
  const auto clone = ArNodeInputs().clone(stream(), *allocator);
  const auto& copy = dynamic_cast<const ArNodeInputs&>(*clone);
  EXPECT_TRUE(copy.tensor_inputs.empty() && copy.kwargs.empty() && copy.label_positions.empty());
  EXPECT_FALSE(copy.input_ids.defined() || copy.input_embeds.defined() ||
               copy.custom_positions.defined());
  EXPECT_EQ(copy.input_seq_len, 0);
  EXPECT_EQ(allocator->num_tensors, 0);
}

TEST_F(NodeInputsCloneTest, T_NI_5_the_clone_of_a_view_owns_contiguous_storage) {
  ArNodeInputs row;
  row.custom_positions = device_ids({0, 1, 2, 10, 11, 12}).reshape({2, 3}).slice(1, 1, 2);
  row.input_ids = host_ids({0, 1, 2, 10, 11, 12}).reshape({2, 3}).select(1, 2);
  const auto clone = row.clone(stream(), *allocator);
  const auto& copy = dynamic_cast<const ArNodeInputs&>(*clone);
  EXPECT_TRUE(copy.custom_positions.is_contiguous());
  EXPECT_FALSE(copy.custom_positions.shares_storage_with(row.custom_positions));
  EXPECT_THAT(values(copy.custom_positions), ElementsAre(1, 2, 11, 12));
  EXPECT_THAT(host_values(copy.input_ids), ElementsAre(2, 12));
}

/// Bytes that a visit covers, for a check that no field is left out.
struct VisitedBytes {
  std::vector<std::pair<std::size_t, std::size_t>>* ranges;  // offset, alignment-rounded end
  const void* row;
  template <class Field>
  void operator()(const char*, const Field& field) const {
    const auto offset = static_cast<std::size_t>(reinterpret_cast<const char*>(&field) -
                                                 static_cast<const char*>(row));
    ranges->emplace_back(offset, offset + sizeof(Field));
  }
};

template <class Row>
void expect_every_byte_visited() {
  const Row row;
  std::vector<std::pair<std::size_t, std::size_t>> ranges;
  Row::for_each_field(row, VisitedBytes{&ranges, &row});
  std::ranges::sort(ranges);
  std::size_t end = sizeof(void*);  // of the virtual functions
  for (const auto& [begin, next_end] : ranges) {
    EXPECT_LT(begin - end, alignof(void*)) << "a field in front of offset " << begin;
    end = next_end;
  }
  EXPECT_LT(sizeof(Row) - end, alignof(void*)) << "a field behind offset " << end;
}

TEST(NodeInputsFields, EveryFieldOfARowIsVisited) {
  expect_every_byte_visited<NodeInputs>();
  expect_every_byte_visited<ArNodeInputs>();
}

class CollateTest : public testing::DeviceTensorTest {
 protected:
  static ArNodeInputs row_of(const std::vector<std::int32_t>& ids) {
    ArNodeInputs row;
    row.input_ids = host_ids(ids);
    row.input_seq_len = static_cast<std::int64_t>(ids.size());
    return row;
  }
  [[nodiscard]] CollatedInputs collated(std::initializer_list<const ArNodeInputs*> rows,
                                        StackingMethod method = StackingMethod::kNone) const {
    return collate(std::span(rows.begin(), rows.size()), method, stream(), *allocator);
  }
  void expect_refused(std::initializer_list<const ArNodeInputs*> rows, StackingMethod method,
                      const char* row, const char* field) const {
    try {
      std::ignore = collated(rows, method);
      FAIL() << "collated " << field;
    } catch (const CheckError& error) {
      EXPECT_THAT(error.what(), HasSubstr(row));
      EXPECT_THAT(error.what(), HasSubstr(field));
    }
  }
};

TEST_F(CollateTest, T_AR_1_ids_are_listed_stacked_or_concatenated) {
  ArNodeInputs a = row_of({1, 2});
  ArNodeInputs b = row_of({3, 4});
  const CollatedInputs listed = collated({&a, &b});
  EXPECT_THAT(listed.input_seq_lens, ElementsAre(2, 2));
  EXPECT_FALSE(listed.find("input_ids")->stacked.defined());
  EXPECT_THAT(host_values(std::get<Tensor>(listed.find("input_ids")->values[1])),
              ElementsAre(3, 4));
  EXPECT_EQ(listed.find("input_embeds"), nullptr);

  const Tensor stacked = collated({&a, &b}, StackingMethod::kStack).find("input_ids")->stacked;
  EXPECT_EQ(stacked.shape(), (Shape{2, 2}));
  a.input_ids = device_ids({1, 2});
  b.input_ids = device_ids({3, 4, 5});
  b.input_seq_len = 3;
  const Tensor joined = collated({&a, &b}, StackingMethod::kCat).find("input_ids")->stacked;
  EXPECT_THAT(values(joined), ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(CollateTest, T_AR_2_some_rows_with_ids_and_some_with_embeddings_are_refused) {
  const ArNodeInputs a = row_of({1});
  ArNodeInputs b;
  b.input_embeds = host_ids({1, 2}).reshape({1, 2});
  b.input_seq_len = 1;
  expect_refused({&a, &b}, StackingMethod::kNone, "row 1", "input_embeds");
}

TEST_F(CollateTest, ARowWithoutTokensIsLeftOutAndTheOthersAreKnown) {
  const ArNodeInputs a = row_of({1});
  ArNodeInputs on_device;
  on_device.input_seq_len = 1;
  const CollatedInputs bag = collated({&a, &on_device, &a}, StackingMethod::kCat);
  EXPECT_THAT(bag.input_seq_lens, ElementsAre(1, 1, 1));
  EXPECT_THAT(bag.find("input_ids")->rows, ElementsAre(0, 2));
}

TEST_F(CollateTest, T_AR_3_positions_of_a_label_follow_each_other_along_the_sequence) {
  ArNodeInputs a = row_of({1, 2});
  a.label_positions.emplace_back(LabelId{1}, host_ids({0, 1, 10, 11}).reshape({2, 2}));
  ArNodeInputs b = row_of({3});
  b.label_positions.emplace_back(LabelId{1}, host_ids({2, 12}).reshape({2, 1}));
  const CollatedInputs bag = collated({&a, &b}, StackingMethod::kCat);
  EXPECT_THAT(host_values(bag.positions(LabelId{1})->stacked), ElementsAre(0, 1, 2, 10, 11, 12));
  EXPECT_EQ(bag.positions(LabelId{0}), nullptr);
}

TEST_F(CollateTest, T_AR_4_positions_of_both_kinds_are_refused_in_either_order) {
  ArNodeInputs a = row_of({1});
  a.custom_positions = host_ids({0});
  ArNodeInputs b = row_of({1});
  b.label_positions.emplace_back(LabelId{0}, host_ids({0}));
  expect_refused({&a, &b}, StackingMethod::kNone, "row 1", "label_positions");
  expect_refused({&b, &a}, StackingMethod::kNone, "row 1", "custom_positions");
}

TEST_F(CollateTest, T_AR_5_shapes_and_dtypes_that_do_not_fit_are_refused) {
  const ArNodeInputs a = row_of({1});
  const ArNodeInputs b = row_of({2, 3});
  expect_refused({&a, &b}, StackingMethod::kStack, "row 1", "input_ids");
  ArNodeInputs wide = row_of({1});
  const std::vector<std::int64_t> wide_ids{1};
  wide.input_ids = Tensor::copy_of(std::span<const std::int64_t>(wide_ids));
  expect_refused({&a, &wide}, StackingMethod::kCat, "row 1", "input_ids");
  ArNodeInputs longer = row_of({1});
  longer.input_seq_len = 2;
  expect_refused({&longer}, StackingMethod::kNone, "row 0", "input_ids");
}

TEST_F(CollateTest, T_AR_6_arguments_stand_beside_the_fields_of_the_rows) {
  ArNodeInputs a = row_of({1});
  a.tensor_inputs.emplace_back("mask", host_ids({1}));
  a.kwargs.emplace_back("scale", 1.5);
  ArNodeInputs b = row_of({2});
  b.tensor_inputs.emplace_back("mask", host_ids({2}));
  const CollatedInputs bag = collated({&a, &b}, StackingMethod::kStack);
  EXPECT_THAT(host_values(bag.find("mask")->stacked), ElementsAre(1, 2));
  EXPECT_EQ(bag.find("mask")->origin, CollatedField::Origin::kTensorInputs);
  EXPECT_EQ(std::get<double>(bag.find("scale")->values.front()), 1.5);
  EXPECT_FALSE(bag.find("scale")->stacked.defined());
}

TEST_F(CollateTest, T_AR_7_two_fields_of_one_name_are_refused) {
  ArNodeInputs reserved = row_of({1});
  reserved.kwargs.emplace_back("input_ids", true);
  expect_refused({&reserved}, StackingMethod::kNone, "row 0", "input_ids");
  ArNodeInputs a = row_of({1});
  a.tensor_inputs.emplace_back("mask", host_ids({1}));
  ArNodeInputs b = row_of({1});
  b.kwargs.emplace_back("mask", true);
  expect_refused({&a, &b}, StackingMethod::kNone, "row 1", "mask");
}

TEST_F(CollateTest, T_AR_8_no_rows_make_an_empty_bag) {
  const CollatedInputs bag = collated({}, StackingMethod::kStack);
  EXPECT_TRUE(bag.empty() && bag.fields.empty() && bag.label_positions.empty());
}

}  // namespace
}  // namespace rigel
