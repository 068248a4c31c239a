#pragma once

#include "engine/graph_catalog.h"
#include "engine/piecewise_runner.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>

namespace rigel {

/// The captured regions of a node, in the order in which its submodule configured them. One graph a bucket and part: see
/// PiecewiseStep for why no more are needed. Thread: worker.
class PiecewiseRunners final : private CaptureClient {
 public:
  /// Makes all static inputs, so that no later capture moves what an earlier one reads. `staging_bytes`: of the columns of the
  /// largest run of a region with a step of its own. Everything given outlives it.
  PiecewiseRunners(StreamRef stream, StepRunner& resources, const GraphCatalog& catalog,
                   std::int64_t staging_bytes);

  [[nodiscard]] std::size_t size() const { return regions_.size(); }
  [[nodiscard]] PiecewiseRunner& operator[](std::size_t region) { return regions_[region]; }
  [[nodiscard]] const PiecewiseRunner& operator[](std::size_t region) const {
    return regions_[region];
  }
  /// Null where no region is called that. Compares strings: not for a steady step.
  [[nodiscard]] PiecewiseRunner* find(std::string_view label);

  /// The regions that are leased for an eager step of this size before it is declared.
  [[nodiscard]] PiecewiseLeases lease(std::int32_t num_lanes, std::int64_t num_tokens) const;

  /// See GraphRunner. The walk of a bucket is its region's number, its key the part.
  void capture_all() { graphs_.capture_all(*this); }
  bool capture_next() { return graphs_.capture_next(*this); }
  [[nodiscard]] const GraphRunner& runner() const { return graphs_; }
  [[nodiscard]] std::int64_t num_bytes() const;

 private:
  [[nodiscard]] PiecewiseRunner& region_of(std::size_t bucket);

  // CaptureClient
  void prepare(std::size_t bucket, std::int32_t slot) override;
  void enqueue() override { capturing_->enqueue_capture(bucket_); }
  void reset() noexcept override;

  CachingAllocator allocator_;  // of outputs
  GraphRunner graphs_;
  std::deque<PiecewiseRunner> regions_;
  PiecewiseRunner* capturing_ = nullptr;
  std::size_t bucket_ = 0;
};

}  // namespace rigel
