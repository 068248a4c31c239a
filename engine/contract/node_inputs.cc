#include "engine/contract/node_inputs.h"

#include "tensor/error.h"

namespace rigel {

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
    const int sequence_dim = inputs.custom_positions.rank() - 1;
    RIGEL_CHECK(inputs.custom_positions.dim(sequence_dim) == inputs.input_seq_len,
                "positions of shape {} do not match a row of {} tokens",
                to_string(inputs.custom_positions.shape()), inputs.input_seq_len);
    part->custom_positions = inputs.custom_positions.slice(sequence_dim, start, end - start);
  }
  return part;
}

}  // namespace rigel
