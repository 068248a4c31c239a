#include "engine/executing_batch.h"

namespace rigel {

void ExecutingBatch::reserve(std::size_t num_lanes) {
  handles_.reserve(num_lanes);
  infos_.reserve(num_lanes);
  metadata_.reserve(num_lanes);
  inputs_.reserve(num_lanes);
  sources_.reserve(num_lanes);
}

void ExecutingBatch::clear() {
  truncate(0);
  owned_inputs_.clear();
  skipped_.clear();
}

void ExecutingBatch::truncate(std::size_t num_lanes) {
  handles_.resize(num_lanes);
  infos_.resize(num_lanes);
  metadata_.resize(num_lanes);
  inputs_.resize(num_lanes);
  sources_.resize(num_lanes);
}

}  // namespace rigel
