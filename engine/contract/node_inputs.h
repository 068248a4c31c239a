#pragma once

#include "engine/contract/ids.h"
#include "engine/contract/signals.h"
#include "engine/contract/tensor_copies.h"
#include "engine/step.h"
#include "tensor/tensor.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace rigel {

/// A model's own object that travels with an input row; shared by clones, never looked into by the engine.
class Opaque {
 public:
  virtual ~Opaque() = default;
  /// True where the object says nothing, so that a row carrying it may be cut like a row without one.
  [[nodiscard]] virtual bool empty() const { return false; }
};

struct InputValue;
using InputList = std::vector<InputValue>;
using InputDict = std::vector<std::pair<std::string, InputValue>>;
using InputVariant = std::variant<std::monostate, bool, std::int64_t, double, std::string, Tensor,
                                  std::shared_ptr<const Opaque>, InputList, InputDict>;

/// A named argument of a row: a plain value, a tensor, a model's own object, or a list or dictionary of these.
struct InputValue : InputVariant {
  using InputVariant::InputVariant;
};

/// Positions of one of a request's cache streams: (seq) or (axes, seq) i32.
using LabelPositions = std::pair<LabelId, Tensor>;

/// Replaces the tensors of a row's field by copies of their own; `()` of a field that has none does nothing. A field of
/// another type does not compile here: say first how it is cloned.
class FieldDetacher {
 public:
  FieldDetacher(StreamRef stream, TensorAllocator& allocator)
      : stream_(stream), allocator_(allocator) {}

  void operator()(const char* /*name*/, Tensor& tensor) const;
  void operator()(const char* name, InputValue& value) const;
  template <class Key, class Value>
  void operator()(const char* name, std::vector<std::pair<Key, Value>>& entries) const {
    for (auto& [unused, value] : entries) {
      (*this)(name, value);
    }
  }
  void operator()(const char* /*name*/, std::shared_ptr<const Opaque>& /*shared*/) const {}
  void operator()(const char* /*name*/, std::int64_t& /*plain*/) const {}
  void operator()(const char* /*name*/, WalkId& /*plain*/) const {}

 private:
  StreamRef stream_;
  TensorAllocator& allocator_;
};

/// What one request brings to one step: the result of NodeSubmodule::prepare_inputs. A row that several requests share
/// (uniform_row_inputs) is immutable.
///
/// A class of rows lists its fields once, in for_each_field, and overrides make_clone by `return clone_row(*this, detach)`.
class NodeInputs {
 public:
  virtual ~NodeInputs() = default;

  std::vector<std::pair<std::string, Tensor>> tensor_inputs;
  std::vector<std::pair<std::string, InputValue>> kwargs;
  std::shared_ptr<const Opaque> resource_step_info;  // what declare_step needs beyond the shape
  std::int64_t input_seq_len = 0;  // tokens that this row adds; 0 for what is not a sequence
  std::int64_t chunk_start = 0;    // first token of this row in its whole input
  std::int64_t chunk_total = 0;    // tokens of the whole input; 0: not cut
  WalkId walk{};                   // the row's own walk where several run in one step

  /// Calls `visit(name, field)` for every field of `row`, const or not.
  template <class Row, class Visit>
  static void for_each_field(Row& row, const Visit& visit) {
    visit("tensor_inputs", row.tensor_inputs);
    visit("kwargs", row.kwargs);
    visit("resource_step_info", row.resource_step_info);
    visit("input_seq_len", row.input_seq_len);
    visit("chunk_start", row.chunk_start);
    visit("chunk_total", row.chunk_total);
    visit("walk", row.walk);
  }

  /// The last (or only) part of a whole input.
  [[nodiscard]] bool is_final_chunk() const {
    return chunk_total == 0 || chunk_start + input_seq_len >= chunk_total;
  }
  [[nodiscard]] bool has_opaque_step_info() const {
    return resource_step_info != nullptr && !resource_step_info->empty();
  }

  /// A row of the same class with tensors of its own, contiguous, in the order of `stream`; opaque objects are shared. So
  /// that a capture's template can be used again. Throws CheckError where the row's class did not override make_clone.
  [[nodiscard]] std::unique_ptr<NodeInputs> clone(StreamRef stream,
                                                  TensorAllocator& allocator) const;

 protected:
  [[nodiscard]] virtual std::unique_ptr<NodeInputs> make_clone(const FieldDetacher& detach) const {
    return clone_row(*this, detach);
  }
  /// Copying the row takes over whatever it holds; the visit then separates what would still be shared.
  template <class Row>
  [[nodiscard]] static std::unique_ptr<NodeInputs> clone_row(const Row& row,
                                                             const FieldDetacher& detach) {
    auto copy = std::make_unique<Row>(row);
    Row::for_each_field(*copy, detach);
    return copy;
  }
};

/// A row of an autoregressive node: token ids or embeddings (at most one of them; neither where the token is already on the
/// device), and optionally its own positions, either one set or one a label.
class ArNodeInputs : public NodeInputs {
 public:
  Tensor input_ids;                             // (seq) i32
  Tensor input_embeds;                          // (seq, hidden)
  Tensor custom_positions;                      // (seq) or (axes, seq) i32
  std::vector<LabelPositions> label_positions;  // not beside custom_positions

  template <class Row, class Visit>
  static void for_each_field(Row& row, const Visit& visit) {
    NodeInputs::for_each_field(row, visit);
    visit("input_ids", row.input_ids);
    visit("input_embeds", row.input_embeds);
    visit("custom_positions", row.custom_positions);
    visit("label_positions", row.label_positions);
  }

 protected:
  [[nodiscard]] std::unique_ptr<NodeInputs> make_clone(const FieldDetacher& detach) const override {
    return clone_row(*this, detach);
  }
};

/// Tokens [start, end) of a row; tensors are views into the row's. Requires 0 <= start < end <= input_seq_len. Throws
/// CheckError naming the field where the row carries something that only its model knows how to cut.
[[nodiscard]] std::unique_ptr<ArNodeInputs> split_ar_inputs(const ArNodeInputs& inputs,
                                                            std::int64_t start, std::int64_t end);

}  // namespace rigel
