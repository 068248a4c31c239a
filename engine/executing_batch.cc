#include "engine/executing_batch.h"

#include "tensor/error.h"

#include <algorithm>

namespace rigel {

void ExecutingBatch::reserve(std::size_t num_lanes) {
  if (num_lanes > handles_.size()) {
    grow(num_lanes);
  }
}

void ExecutingBatch::add(std::span<const RequestHandle> handles,
                         std::span<const RequestInfo* const> infos, const NodeInputs& inputs,
                         LoopId loop, std::span<const std::int32_t> iterations) {
  RIGEL_CHECK(infos.size() == handles.size() && iterations.size() == handles.size(),
              "{} lanes with {} infos and {} iterations", handles.size(), infos.size(),
              iterations.size());
  const std::size_t first = num_lanes_;
  num_lanes_ += handles.size();
  reserve(num_lanes_);
  std::copy_n(handles.data(), handles.size(), handles_.data() + first);
  std::copy_n(infos.data(), infos.size(), infos_.data() + first);
  std::ranges::fill(std::span(inputs_).subspan(first, handles.size()), &inputs);
  for (std::size_t index = 0; index < handles.size(); ++index) {
    InputMetadata& metadata = metadata_[first + index];
    metadata.stream_chunks.clear();
    // Most often the lane had the same loop in an earlier step, and nothing else.
    LoopCounters& counters = metadata.loop_counters;
    if (counters.size() > 1 || counters.count(loop) == 0) {
      counters = LoopCounters();
    }
    counters.set(loop, iterations[index]);
  }
}

void ExecutingBatch::clear() {
  num_turns = 1;
  num_lanes_ = 0;
  owned_inputs_.clear();
  skipped_.clear();
}

void ExecutingBatch::grow(std::size_t num_lanes) {
  handles_.resize(num_lanes);
  infos_.resize(num_lanes);
  metadata_.resize(num_lanes);
  inputs_.resize(num_lanes);
  sources_.resize(num_lanes);
}

}  // namespace rigel
