#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/contract/ids.h"
#include "engine/contract/signals.h"
#include "tensor/tensor.h"

namespace rigel {

/// A model's own object that travels with an input row; shared by clones, never looked into by the engine.
class Opaque {
 public:
  virtual ~Opaque() = default;
  /// True where the object says nothing, so that a row carrying it may be cut like a row without one.
  [[nodiscard]] virtual bool empty() const { return false; }
};

/// A named argument of a row that is not a tensor.
using InputValue = std::variant<std::monostate, bool, std::int64_t, double, std::string, Tensor>;

/// What one request brings to one step: the result of NodeSubmodule::prepare_inputs. A row that several requests share
/// (uniform_row_inputs) is immutable.
class NodeInputs {
 public:
  virtual ~NodeInputs() = default;

  std::vector<std::pair<std::string, Tensor>> tensor_inputs;
  std::vector<std::pair<std::string, InputValue>> kwargs;
  std::shared_ptr<const Opaque> resource_step_info;  // what declare_step needs beyond the shape
  std::int64_t input_seq_len = 0;                     // tokens that this row adds; 0 for what is not a sequence
  std::int64_t chunk_start = 0;                       // first token of this row in its whole input
  std::int64_t chunk_total = 0;                       // tokens of the whole input; 0: not cut
  WalkId walk{};                                      // the row's own walk where several run in one step

  /// The last (or only) part of a whole input.
  [[nodiscard]] bool is_final_chunk() const {
    return chunk_total == 0 || chunk_start + input_seq_len >= chunk_total;
  }
  [[nodiscard]] bool has_opaque_step_info() const {
    return resource_step_info != nullptr && !resource_step_info->empty();
  }
};

/// A row of an autoregressive node: token ids or embeddings (at most one of them; neither where the token is already on the
/// device), and optionally its own positions.
class ArNodeInputs : public NodeInputs {
 public:
  Tensor input_ids;     // (seq) i32
  Tensor input_embeds;  // (seq, hidden)
  Tensor custom_positions;  // (seq) or (axes, seq) i32
};

/// Tokens [start, end) of a row; tensors are views into the row's. Requires 0 <= start < end <= input_seq_len. Throws
/// CheckError naming the field where the row carries something that only its model knows how to cut.
[[nodiscard]] std::unique_ptr<ArNodeInputs> split_ar_inputs(const ArNodeInputs& inputs,
                                                            std::int64_t start, std::int64_t end);

}  // namespace rigel
