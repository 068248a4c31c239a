#include "engine/contract/collate.h"

#include "tensor/error.h"

#include <algorithm>
#include <array>

namespace rigel {

namespace {

using Origin = CollatedField::Origin;

constexpr std::string_view kIds = "input_ids";
constexpr std::string_view kEmbeds = "input_embeds";
constexpr std::string_view kPositions = "custom_positions";
constexpr std::array<std::string_view, 4> kReserved = {kIds, kEmbeds, kPositions, "input_seq_len"};

/// The entry `name` of the bag, made if it was not there.
CollatedField& field_of(CollatedInputs& bag, std::string_view name, Origin origin,
                        std::int32_t row) {
  RIGEL_CHECK(origin == Origin::kRow || std::ranges::find(kReserved, name) == kReserved.end(),
              "row {} brings a tensor input or argument '{}', which is the name of a field", row,
              name);
  for (CollatedField& field : bag.fields) {
    if (field.name == name) {
      RIGEL_CHECK(field.origin == origin,
                  "row {} brings '{}', which row {} brings as another kind of field", row, name,
                  field.rows.front());
      return field;
    }
  }
  return bag.fields.emplace_back(CollatedField{std::string(name), origin, {}, {}, {}});
}

CollatedField& positions_of(CollatedInputs& bag, LabelId label) {
  for (auto& [known, field] : bag.label_positions) {
    if (known == label) {
      return field;
    }
  }
  CollatedField field{std::string(kPositions), Origin::kRow, {}, {}, {}};
  return bag.label_positions.emplace_back(label, std::move(field)).second;
}

void add(CollatedField& field, std::int32_t row, InputValue value) {
  RIGEL_CHECK(field.rows.empty() || field.rows.back() != row, "row {} brings '{}' twice", row,
              field.name);
  field.rows.push_back(row);
  field.values.push_back(std::move(value));
}

/// A row that brings `field` must not come after one that brought `other`.
void check_not_both(const CollatedInputs& bag, std::string_view field, std::string_view other,
                    std::int32_t row) {
  const CollatedField* known = bag.find(other);
  RIGEL_CHECK(known == nullptr, "row {} brings {}, row {} brings {}: a batch has one of the two",
              row, field, known->rows.front(), other);
}

void check_length(const ArNodeInputs& inputs, const Tensor& tensor, int dim, std::string_view name,
                  std::int32_t row) {
  RIGEL_CHECK(dim >= 0 && dim < tensor.rank() && tensor.dim(dim) == inputs.input_seq_len,
              "row {} of {} tokens brings {} of shape {}", row, inputs.input_seq_len, name,
              to_string(tensor.shape()));
}

void add_sequence(CollatedInputs& bag, const ArNodeInputs& inputs, std::int32_t row) {
  if (inputs.input_ids.defined()) {
    check_not_both(bag, kIds, kEmbeds, row);
    check_length(inputs, inputs.input_ids, 0, kIds, row);
    add(field_of(bag, kIds, Origin::kRow, row), row, inputs.input_ids);
  }
  if (inputs.input_embeds.defined()) {
    check_not_both(bag, kEmbeds, kIds, row);
    check_length(inputs, inputs.input_embeds, 0, kEmbeds, row);
    add(field_of(bag, kEmbeds, Origin::kRow, row), row, inputs.input_embeds);
  }
}

void add_positions(CollatedInputs& bag, const ArNodeInputs& inputs, std::int32_t row) {
  if (inputs.custom_positions.defined()) {
    RIGEL_CHECK(bag.label_positions.empty(),
                "row {} brings custom_positions, row {} brings label_positions: a batch has one of "
                "the two",
                row, bag.label_positions.front().second.rows.front());
    check_length(inputs, inputs.custom_positions, inputs.custom_positions.rank() - 1, kPositions,
                 row);
    add(field_of(bag, kPositions, Origin::kRow, row), row, inputs.custom_positions);
  }
  for (const auto& [label, positions] : inputs.label_positions) {
    check_not_both(bag, "label_positions", kPositions, row);
    check_length(inputs, positions, positions.rank() - 1, "label_positions", row);
    add(positions_of(bag, label), row, positions);
  }
}

/// Dimension along which tensors of a field follow each other.
int cat_dim(const CollatedField& field, const Tensor& tensor) {
  return field.origin == Origin::kRow && field.name == kPositions ? tensor.rank() - 1 : 0;
}

/// The tensors of a field; empty where no row brings one.
std::vector<Tensor> tensors_of(const CollatedField& field) {
  std::vector<Tensor> tensors;
  for (std::size_t index = 0; index < field.values.size(); ++index) {
    const auto* tensor = std::get_if<Tensor>(&field.values[index]);
    const bool is_defined = tensor != nullptr && tensor->defined();
    RIGEL_CHECK(tensors.size() == (is_defined ? index : 0),
                "row {} and row {} differ in '{}': one brings a tensor and one does not",
                field.rows.front(), field.rows[index], field.name);
    if (is_defined) {
      tensors.push_back(*tensor);
    }
  }
  return tensors;
}

void check_alike(const CollatedField& field, std::span<const Tensor> tensors,
                 StackingMethod method) {
  const Tensor& first = tensors.front();
  RIGEL_CHECK(method == StackingMethod::kStack || first.rank() > 0,
              "row {} brings '{}' without dimensions, which cannot be concatenated",
              field.rows.front(), field.name);
  for (std::size_t index = 1; index < tensors.size(); ++index) {
    const Tensor& tensor = tensors[index];
    RIGEL_CHECK(tensor.dtype() == first.dtype() && tensor.space() == first.space(),
                "row {} brings '{}' as {}, row {} as {}, or they are not in one memory",
                field.rows[index], field.name, name_of(tensor.dtype()), field.rows.front(),
                name_of(first.dtype()));
    Shape shape = tensor.shape();
    if (method == StackingMethod::kCat && shape.rank() == first.rank()) {
      const int dim = cat_dim(field, first);
      shape.set(dim, first.dim(dim));
    }
    RIGEL_CHECK(shape == first.shape(), "row {} brings '{}' of shape {}, row {} of shape {}",
                field.rows[index], field.name, to_string(tensor.shape()), field.rows.front(),
                to_string(first.shape()));
  }
}

void stack(CollatedField& field, StackingMethod method, StreamRef stream,
           TensorAllocator& allocator) {
  const std::vector<Tensor> tensors = tensors_of(field);
  if (tensors.empty()) {
    return;
  }
  check_alike(field, tensors, method);
  field.stacked =
      method == StackingMethod::kStack
          ? stack_of(tensors, stream, allocator)
          : concatenation_of(tensors, cat_dim(field, tensors.front()), stream, allocator);
}

}  // namespace

const CollatedField* CollatedInputs::find(std::string_view name) const {
  const auto field = std::ranges::find(fields, name, &CollatedField::name);
  return field == fields.end() ? nullptr : &*field;
}

const CollatedField* CollatedInputs::positions(LabelId label) const {
  for (const auto& [known, field] : label_positions) {
    if (known == label) {
      return &field;
    }
  }
  return nullptr;
}

CollatedInputs collate(std::span<const ArNodeInputs* const> rows, StackingMethod method,
                       StreamRef stream, TensorAllocator& allocator) {
  CollatedInputs bag;
  for (std::size_t index = 0; index < rows.size(); ++index) {
    const ArNodeInputs& inputs = *rows[index];
    const auto row = static_cast<std::int32_t>(index);
    bag.input_seq_lens.push_back(inputs.input_seq_len);
    add_sequence(bag, inputs, row);
    add_positions(bag, inputs, row);
    for (const auto& [name, tensor] : inputs.tensor_inputs) {
      add(field_of(bag, name, Origin::kTensorInputs, row), row, tensor);
    }
    for (const auto& [name, value] : inputs.kwargs) {
      add(field_of(bag, name, Origin::kKwargs, row), row, value);
    }
  }
  if (method != StackingMethod::kNone) {
    for (CollatedField& field : bag.fields) {
      stack(field, method, stream, allocator);
    }
    for (auto& [label, field] : bag.label_positions) {
      stack(field, method, stream, allocator);
    }
  }
  return bag;
}

}  // namespace rigel
