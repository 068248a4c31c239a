#pragma once

#include "engine/contract/node_inputs.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rigel {

/// What becomes of the tensors that the rows of a batch bring under one name.
enum class StackingMethod : std::uint8_t {
  kNone,   // they stay a list
  kStack,  // one tensor with a new dimension 0; shapes must be equal
  kCat,  // one tensor, one behind the other: positions along their last dimension, all else along the first
};

/// What the rows of a batch bring under one name.
struct CollatedField {
  enum class Origin : std::uint8_t { kRow, kTensorInputs, kKwargs };

  std::string name;
  Origin origin = Origin::kRow;
  std::vector<std::int32_t> rows;  // those that bring a value, ascending
  std::vector<InputValue> values;  // theirs, sharing their storage
  Tensor stacked;  // all values in one tensor; undefined for kNone and for what is no tensor
};

/// A batch of rows as arguments of one forward. Names are unique over all origins: "input_ids", "input_embeds",
/// "custom_positions", and those of the rows' tensor_inputs and kwargs.
struct CollatedInputs {
  std::vector<std::int64_t> input_seq_lens;  // one a row
  std::vector<CollatedField> fields;         // in the order in which they were first seen
  std::vector<std::pair<LabelId, CollatedField>> label_positions;

  [[nodiscard]] const CollatedField* find(std::string_view name) const;
  [[nodiscard]] const CollatedField* positions(LabelId label) const;
  [[nodiscard]] bool empty() const { return input_seq_lens.empty(); }
};

/// Collates rows; no rows make an empty bag. What a row does not bring is left out, and `rows` says who did; resource_step_info
/// is not collated.
///
/// Throws CheckError, naming the row and the field, where some rows bring ids and others embeddings, where rows have positions
/// of both kinds, where two fields have one name, where a row's tensors do not have input_seq_len tokens, and where tensors
/// cannot be stacked as asked: other shape, dtype or space (nothing is converted), or values that are no tensors among them.
///
/// Reads no values, so nothing waits. For what a forward is given once a batch; steps of many a second stage columns.
[[nodiscard]] CollatedInputs collate(std::span<const ArNodeInputs* const> rows,
                                     StackingMethod method, StreamRef stream,
                                     TensorAllocator& allocator);

}  // namespace rigel
