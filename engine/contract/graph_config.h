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
  std::string key_name;              // in metrics; empty where the walk has a single capture
  std::vector<std::int32_t> batch_sizes{1, 2, 4, 8, 16, 32, 64};
  bool caps_eager_batch_size = true;  // a step of these walks has at most the largest batch size

  [[nodiscard]] bool replays(WalkId walk) const {
    return walk == capture_walk || std::ranges::find(replay_walks, walk) != replay_walks.end();
  }
};

/// Every lane brings the same shape. The bucket is known before the inputs are.
struct BatchedGraphConfig : GraphConfig {
  std::shared_ptr<const NodeInputs> row;  // of every lane, padding included
  /// Such a step may run several turns in one launch (`--steps-per-launch`): a row has one token, and what its next step needs is
  /// on the device, or is a column that counts up. It gives stop lanes, and rows that are no wider than a record of them.
  bool repeats = false;
};

/// Lanes bring any lengths that sum up to at most a token count.
struct PackedGraphConfig : GraphConfig {
  std::vector<std::int64_t> token_counts;
  std::function<std::unique_ptr<NodeInputs>(std::int64_t num_tokens)> make_row;
};

using CudaGraphConfig = std::variant<BatchedGraphConfig, PackedGraphConfig>;

struct BatchColumns;

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
using NamedViews = std::vector<std::pair<std::string, ConstDeviceView>>;

/// The size of one piecewise region.
struct PiecewiseShape {
  std::int32_t batch_size = 0;
  std::vector<std::int64_t> seq_lens;
  std::int64_t total_tokens = 0;
};

/// What a region works on, whether it is captured or runs eagerly.
struct PiecewiseCallInputs {
  const NamedViews& static_inputs;             // in the order of make_static_inputs
  const ModelInputsFromEngine& engine_inputs;  // with the region's own step, where it has one
  std::int32_t part = 0;
  std::int32_t num_lanes = 0;  // of the bucket, while it is captured
  std::int64_t num_tokens = 0;
};

/// One inner function of a forward that is captured while the rest stays eager. engine/piecewise_runner.h runs it.
struct PiecewiseConfig {
  std::string label;
  std::int32_t num_parts = 1;  // captured and run one by one, such as the blocks of a transformer
  std::vector<std::int32_t> batch_sizes{1, 2, 4, 8, 16, 32, 64};
  /// The tensors that captures of this shape read, on the device; there may be none. Smaller shapes get the beginning of
  /// those of the largest along the first dimension, where that is all they differ in.
  std::function<NamedTensors(const PiecewiseShape&)> make_static_inputs;
  /// Enqueues the computation and says where its results are, contiguous, in memory that it has already. Called once a bucket and
  /// part (a second time for the first bucket), and where the region runs eagerly.
  std::function<NamedViews(const PiecewiseCallInputs&)> capture;
  /// The region's own work on resources, over the lanes that it runs on and their tokens, padding last; none: it has none.
  std::function<void(const BatchColumns& lanes, std::span<const std::int64_t> seq_lens,
                     SubmoduleStep& step)>
      declare_step;
  /// Leased before the outer step is declared, which leaves the region's resources out where BatchColumns::region_leases has it
  /// and else declares them itself. False: they are never the outer step's.
  bool lease_before_step = false;
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
