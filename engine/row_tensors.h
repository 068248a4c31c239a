#pragma once

#include "engine/contract/batched_output.h"
#include "engine/contract/ids.h"
#include "tensor/allocator.h"
#include "tensor/stream.h"

#include <utility>
#include <vector>

namespace rigel {

/// Row outputs that leave a node as tensors of their requests. A walk that has none, such as one whose values all stay on the
/// device, costs nothing. Thread: worker.
class RowTensors {
 public:
  void set(WalkId walk, std::vector<SignalId> signals, TensorAllocator& allocator);

  /// Gives each request its row (1, ...) of the walk's signals among the row outputs. Enqueues one copy a signal, behind the
  /// forward, since the next one overwrites its rows; the requests' tensors share it.
  void give(StreamRef stream, WalkId walk, BatchedModelOutput& outputs) const;

 private:
  std::vector<std::pair<WalkId, std::vector<SignalId>>> signals_;
  TensorAllocator* allocator_ = nullptr;
};

}  // namespace rigel
