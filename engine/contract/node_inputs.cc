#include "engine/contract/node_inputs.h"

#include "tensor/error.h"

#include <typeinfo>

namespace rigel {

namespace {

/// Positions of tokens [start, end): the sequence is their last dimension.
Tensor cut_positions(const Tensor& positions, std::int64_t num_tokens, std::int64_t start,
                     std::int64_t end) {
  const int sequence_dim = positions.rank() - 1;
  RIGEL_CHECK(sequence_dim >= 0 && positions.dim(sequence_dim) == num_tokens,
              "positions of shape {} do not match a row of {} tokens", to_string(positions.shape()),
              num_tokens);
  return positions.slice(sequence_dim, start, end - start);
}

}  // namespace

void FieldDetacher::operator()(const char* /*name*/, Tensor& tensor) const {
  tensor = clone_of(tensor, stream_, allocator_);
}

void FieldDetacher::operator()(const char* name, InputValue& value) const {
  if (auto* tensor = std::get_if<Tensor>(&value)) {
    (*this)(name, *tensor);
  } else if (auto* list = std::get_if<InputList>(&value)) {
    for (InputValue& item : *list) {
      (*this)(name, item);
    }
  } else if (auto* dict = std::get_if<InputDict>(&value)) {
    (*this)(name, *dict);
  }
}

std::unique_ptr<NodeInputs> NodeInputs::clone(StreamRef stream, TensorAllocator& allocator) const {
  std::unique_ptr<NodeInputs> copy = make_clone(FieldDetacher(stream, allocator));
  const NodeInputs& made = *copy;
  RIGEL_CHECK(typeid(made) == typeid(*this), "{} must override make_clone: its clone is a {}",
              typeid(*this).name(), typeid(made).name());
  return copy;
}

std::unique_ptr<ArNodeInputs> split_ar_inputs(const ArNodeInputs& inputs, std::int64_t start,
                                              std::int64_t end) {
  RIGEL_CHECK(0 <= start && start < end && end <= inputs.input_seq_len,
              "cannot cut tokens [{}, {}) out of a row of {}", start, end, inputs.input_seq_len);
  RIGEL_CHECK(inputs.tensor_inputs.empty(), "a row with tensor_inputs must be cut by its model");
  RIGEL_CHECK(inputs.kwargs.empty(), "a row with kwargs must be cut by its model");
  RIGEL_CHECK(!inputs.has_opaque_step_info(),
              "a row with resource_step_info must be cut by its model");

  auto part = std::make_unique<ArNodeInputs>();
  part->resource_step_info = inputs.resource_step_info;
  part->walk = inputs.walk;
  part->input_seq_len = end - start;
  part->chunk_start = inputs.chunk_start + start;
  part->chunk_total = inputs.chunk_total != 0 ? inputs.chunk_total : inputs.input_seq_len;
  if (inputs.input_ids.defined()) {
    part->input_ids = inputs.input_ids.slice(0, start, end - start);
  }
  if (inputs.input_embeds.defined()) {
    part->input_embeds = inputs.input_embeds.slice(0, start, end - start);
  }
  if (inputs.custom_positions.defined()) {
    part->custom_positions =
        cut_positions(inputs.custom_positions, inputs.input_seq_len, start, end);
  }
  for (const auto& [label, positions] : inputs.label_positions) {
    part->label_positions.emplace_back(label,
                                       cut_positions(positions, inputs.input_seq_len, start, end));
  }
  return part;
}

}  // namespace rigel
