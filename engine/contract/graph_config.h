#pragma once

#include "engine/contract/capture_key.h"
#include "engine/contract/engine_inputs.h"
#include "engine/contract/node_inputs.h"
#include "tensor/tensor.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace rigel {

// What a submodule wants captured. Plain data, asked for once at load.

/// What the captures of a whole step have in common.
struct GraphConfig {
  WalkId capture_walk{};
  std::vector<WalkId> replay_walks;  // other walks that replay it; the capture walk always does
  CgKey key;                         // what cg_key_info answers for the batches that it serves
  std::vector<std::int32_t> batch_sizes{1, 2, 4, 8, 16, 32, 64};
  bool caps_eager_batch_size = true;  // a step of these walks has at most the largest batch size

  [[nodiscard]] bool replays(WalkId walk) const {
    return walk == capture_walk || std::ranges::find(replay_walks, walk) != replay_walks.end();
  }
};

/// Every lane brings the same shape. The bucket is known before the inputs are.
struct BatchedGraphConfig : GraphConfig {
  std::shared_ptr<const NodeInputs> row;     // of every lane, padding included
  std::int32_t total_tokens_multiplier = 1;  // labels that one row's tokens are committed to
};

/// Lanes bring any lengths that sum up to at most a token count.
struct PackedGraphConfig : GraphConfig {
  std::vector<std::int64_t> token_counts;
  std::function<std::unique_ptr<NodeInputs>(std::int64_t num_tokens)> make_row;
};

using CudaGraphConfig = std::variant<BatchedGraphConfig, PackedGraphConfig>;

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// The size of one piecewise region.
struct PiecewiseShape {
  std::int32_t batch_size = 0;
  std::vector<std::int64_t> seq_lens;
  std::int64_t total_tokens = 0;
};

/// What a captured region reads: the same at capture and at replay.
struct PiecewiseCallInputs {
  const NamedTensors& static_inputs;
  const ModelInputsFromEngine& engine_inputs;
};

/// One inner function of a forward that is captured while the rest stays eager.
struct PiecewiseConfig {
  std::string label;
  std::vector<std::int32_t> batch_sizes{1, 2, 4, 8, 16, 32, 64};
  std::function<NamedTensors(const PiecewiseShape&)> make_static_inputs;
  std::function<NamedTensors(const PiecewiseCallInputs&)> capture;
  /// The region's own work on resources; none: it has none.
  std::function<void(std::span<const RequestHandle>, std::span<const std::int64_t> seq_lens,
                     SubmoduleStep&)>
      declare_step;
  bool lease_before_step =
      false;  // leased before the outer step is declared, which leaves the region's resources out
};

/// (batch, seq_len, ...): every row has the same length, padding included.
struct PiecewiseBatchedConfig : PiecewiseConfig {
  std::int64_t seq_len = 0;
};

/// (total tokens, ...): rows of any lengths.
struct PiecewisePackedConfig : PiecewiseConfig {
  std::vector<std::int64_t> token_counts;
};

using PiecewiseCudaGraphConfig = std::variant<PiecewiseBatchedConfig, PiecewisePackedConfig>;

}  // namespace rigel
