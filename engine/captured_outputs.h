#pragma once

#include "engine/contract/batched_output.h"
#include "engine/contract/engine_inputs.h"
#include "tensor/allocator.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace rigel {

/// What replays of one bucket give, as its captures gave it over padding lanes. Row outputs and stop lanes lie at the same
/// addresses in all slots; outputs by request and packed ones are each slot's own, and are held here, so that no one else gets
/// memory that a replay writes.
class CapturedOutputs {
 public:
  /// Takes what the capture of `slot` gave. Slot 0 comes first. Throws CheckError for stop buffers, rows out of the order of the
  /// lanes or of the step's declaration, and a slot that gives other rows than slot 0.
  void take(std::int32_t slot, const ModelInputsFromEngine& inputs,
            const BatchedModelOutput& outputs);
  /// Adds what a replay of `slot` gives to the real lanes of its step. Tensors are copied behind the replay, in stream order:
  /// the next one overwrites them.
  void give(std::int32_t slot, const ModelInputsFromEngine& inputs, StreamRef stream,
            TensorAllocator& allocator, BatchedModelOutput& outputs) const;

 private:
  struct Slot {
    std::vector<std::pair<std::int32_t, SignalMap>> requests;  // by lane
    BatchedModelOutput::Packed packed;
  };

  void take_rows(std::int32_t slot, const BatchedModelOutput& outputs);
  std::int64_t give_row_handles(const ModelInputsFromEngine& inputs,
                                BatchedModelOutput& outputs) const;
  void give_rows(std::int64_t num_rows, BatchedModelOutput& outputs) const;

  std::vector<BatchedModelOutput::RowOutput> rows_;
  std::optional<StopLanes> stop_lanes_;
  std::vector<std::int32_t> row_lanes_;  // the lane that row i belongs to
  bool has_row_of_each_lane_ = false;    // row i belongs to lane i
  std::vector<Slot> slots_;
};

}  // namespace rigel
