#include "engine/piecewise_runners.h"

#include <algorithm>

namespace rigel {

PiecewiseRunners::PiecewiseRunners(StreamRef stream, StepRunner& resources,
                                   const GraphCatalog& catalog, std::int64_t staging_bytes)
    : allocator_(stream.device()), graphs_(stream, /*num_slots=*/1) {
  for (const PiecewiseCudaGraphConfig& config : catalog.regions()) {
    regions_.emplace_back(static_cast<std::int32_t>(regions_.size()), config, stream, resources,
                          graphs_, allocator_, staging_bytes);
  }
}

PiecewiseRunner* PiecewiseRunners::find(std::string_view label) {
  const auto known = std::ranges::find(regions_, label, &PiecewiseRunner::label);
  return known == regions_.end() ? nullptr : &*known;
}

PiecewiseLeases PiecewiseRunners::lease(std::int32_t num_lanes, std::int64_t num_tokens) const {
  PiecewiseLeases leases;
  for (std::size_t region = 0; region < regions_.size(); ++region) {
    if (regions_[region].leases_before_step() && regions_[region].can_run(num_lanes, num_tokens)) {
      leases.add(region);
    }
  }
  return leases;
}

std::int64_t PiecewiseRunners::num_bytes() const {
  std::int64_t total = graphs_.num_bytes();
  for (const PiecewiseRunner& region : regions_) {
    total += region.num_bytes();
  }
  return total;
}

PiecewiseRunner& PiecewiseRunners::region_of(std::size_t bucket) {
  return *std::ranges::find_if(
      regions_, [bucket](const PiecewiseRunner& region) { return region.has_bucket(bucket); });
}

void PiecewiseRunners::prepare(std::size_t bucket, std::int32_t /*slot*/) {
  bucket_ = bucket;
  capturing_ = &region_of(bucket);
  capturing_->prepare_capture(bucket);
}

void PiecewiseRunners::reset() noexcept {
  if (capturing_ != nullptr) {
    capturing_->reset_capture();
  }
}

}  // namespace rigel
