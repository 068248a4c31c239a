#pragma once

#include "engine/contract/graph_config.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace rigel {

/// What the submodule of a node wants captured, checked and summed up by walk when the node is loaded. Immutable.
class GraphCatalog {
 public:
  /// Throws CheckError naming walk or label and field: no or unsorted sizes, no row, a (walk, key) or a label twice.
  GraphCatalog(std::vector<CudaGraphConfig> steps, std::vector<PiecewiseCudaGraphConfig> regions);

  /// Whether a config serves this walk, be it under an alias.
  [[nodiscard]] bool replays(WalkId walk) const;
  /// The largest batch size over the configs of this walk that cap it; none where none does.
  [[nodiscard]] std::optional<std::int32_t> max_batch_size(WalkId walk) const;

  [[nodiscard]] std::span<const CudaGraphConfig> steps() const { return steps_; }
  [[nodiscard]] std::span<const PiecewiseCudaGraphConfig> regions() const { return regions_; }

 private:
  struct Walk {
    WalkId walk{};
    std::optional<std::int32_t> max_batch_size;
  };

  void add(const GraphConfig& config);
  [[nodiscard]] const Walk* find(WalkId walk) const;

  std::vector<CudaGraphConfig> steps_;
  std::vector<PiecewiseCudaGraphConfig> regions_;
  std::vector<Walk> walks_;
};

}  // namespace rigel
