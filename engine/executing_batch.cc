#include "engine/executing_batch.h"

namespace rigel {

void ExecutingBatch::reserve(std::size_t num_lanes) {
  if (num_lanes > handles_.size()) {
    grow(num_lanes);
  }
}

void ExecutingBatch::clear() {
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
