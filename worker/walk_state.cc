#include "worker/walk_state.h"

#include <algorithm>
#include <memory>

namespace rigel {

WalkPasses::WalkPasses(const walk::Program& program, const walk::CompiledPartition& partition,
                       std::int32_t num_rows) {
  std::size_t num_nodes = 0;
  std::size_t num_scopes = 0;
  for (const WalkId id : partition.walks) {
    const walk::CompiledWalk& walk = program.walk(id);
    num_nodes = std::max(num_nodes, walk.nodes.size());
    num_scopes = std::max(num_scopes, walk.scopes.size());
    num_inputs_ = std::max(num_inputs_, walk.inputs.size());
    num_cells_ = std::max(num_cells_, walk.cell_accumulates.size());
  }
  const std::size_t rows = at(num_rows);
  first_scope_ = kNodes + num_nodes * sizeof(WalkNodeState);
  const std::size_t num_lines =
      (first_scope_ + num_scopes * sizeof(WalkScopeState) + sizeof(Line) - 1) / sizeof(Line);
  record_bytes_ = num_lines * sizeof(Line);
  records_.resize(rows * num_lines);
  std::byte* record = records_.empty() ? nullptr : records_.data()->data();
  for (std::size_t row = 0; row < rows; ++row, record += record_bytes_) {
    new (record) WalkPass();
    std::uninitialized_value_construct_n(reinterpret_cast<WalkNodeState*>(record + kNodes),
                                         num_nodes);
    std::uninitialized_value_construct_n(reinterpret_cast<WalkScopeState*>(record + first_scope_),
                                         num_scopes);
  }
  current_.resize(rows * num_inputs_);
  next_.resize(rows * num_inputs_);
  cells_.resize(rows * num_cells_);
}

std::size_t WalkPasses::num_tensors() const {
  std::size_t num_tensors = 0;
  for (const std::vector<TensorList>* lists : {&current_, &next_, &cells_}) {
    for (const TensorList& list : *lists) {
      num_tensors += list.size();
    }
  }
  return num_tensors;
}

}  // namespace rigel
