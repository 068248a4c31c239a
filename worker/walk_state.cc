#include "worker/walk_state.h"

#include <algorithm>

namespace rigel {

WalkPasses::WalkPasses(const walk::Program& program, const walk::CompiledPartition& partition,
                       std::int32_t num_rows) {
  for (const WalkId id : partition.walks) {
    const walk::CompiledWalk& walk = program.walk(id);
    num_nodes_ = std::max(num_nodes_, walk.nodes.size());
    num_scopes_ = std::max(num_scopes_, walk.scopes.size());
    num_inputs_ = std::max(num_inputs_, walk.inputs.size());
    num_cells_ = std::max(num_cells_, walk.cell_accumulates.size());
  }
  const std::size_t rows = at(num_rows);
  passes_.resize(rows);
  nodes_.resize(rows * num_nodes_);
  scopes_.resize(rows * num_scopes_);
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
