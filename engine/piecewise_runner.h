#pragma once

#include "engine/contract/submodule.h"
#include "engine/piecewise_outputs.h"
#include "engine/piecewise_step.h"
#include "engine/step_context.h"
#include "engine/step_runner.h"
#include "graphs/graph_runner.h"
#include "tensor/allocator.h"
#include "tensor/stream.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rigel {

struct PiecewiseInput {
  std::string_view name;
  ConstDeviceView view;
};

/// What a forward gives a region to run on. How many lanes is said by the first of num_lanes, handles and seq_lens that is there.
struct PiecewiseRun {
  std::int32_t part = 0;
  /// Contiguous, and as long as the run along the first dimension. Names that the region does not read are for nobody.
  std::span<const PiecewiseInput> inputs = {};
  std::int32_t num_lanes = 0;
  /// Neighbouring lanes of the step: those of the region's own step, where it has one.
  std::span<const RequestHandle> handles = {};
  std::span<const std::int64_t> seq_lens =
      {};  // by lane; only in a packed region, and there needed
};

/// Why a run of a region was enqueued launch by launch.
enum class RegionMiss : std::uint8_t {
  kNoBucket,     // larger than what is captured
  kNotCaptured,  // its capture has failed, or is still to come
  kNotLeased,    // the outer step has declared the region's resources
  kOverflow,     // more of something than the capture of its own step has room for
};
inline constexpr std::size_t kNumRegionMisses = 4;

struct RegionCounts {
  std::uint64_t num_replays = 0;
  std::array<std::uint64_t, kNumRegionMisses> misses{};
};

/// One captured region of a node's forwards. It replays a capture or runs the same callable eagerly, and nothing but the counts
/// tells which.
///
/// A capture reads static inputs, and its results are copied within it to memory that is this region's alone: neither another
/// region nor a captured step writes there. Static inputs are as large as the largest bucket, and what a run leaves of
/// its bucket's is zeroed, since padding is computed. Thread: worker.
class PiecewiseRunner {
 public:
  /// Makes the static inputs and adds the buckets to `graphs`, as walk `number`, with the part as key. `stream` and everything
  /// by reference outlive it.
  PiecewiseRunner(std::int32_t number, const PiecewiseCudaGraphConfig& config, StreamRef stream,
                  StepRunner& resources, GraphRunner& graphs, TensorAllocator& allocator,
                  std::int64_t staging_bytes);

  [[nodiscard]] std::string_view label() const { return config_.label; }
  /// Whether a capture of this size serves: `num_tokens` over all lanes.
  [[nodiscard]] bool can_run(std::int32_t num_lanes, std::int64_t num_tokens,
                             std::int32_t part = 0) const {
    return find_bucket({num_lanes, num_tokens}, part).has_value();
  }
  /// Runs the region on the stream, for the forward that `step` was given to. Without a copy of an output nothing is
  /// allocated by a replay. Throws CheckError naming the region and what does not fit, or the resource that refuses its step.
  PiecewiseOutputs run(const PiecewiseRun& what, const ModelInputsFromEngine& step);

  [[nodiscard]] bool leases_before_step() const { return config_.lease_before_step; }
  [[nodiscard]] const RegionCounts& counts() const { return counts_; }
  /// Memory of inputs, outputs and columns.
  [[nodiscard]] std::int64_t num_bytes() const;

  // Captures, by the number of the bucket in `graphs`.

  [[nodiscard]] bool has_bucket(std::size_t bucket) const {
    return bucket >= first_bucket_ && bucket < first_bucket_ + buckets_.size();
  }
  void prepare_capture(std::size_t bucket);
  void enqueue_capture(std::size_t bucket);
  void reset_capture() noexcept;

 private:
  struct Size {
    std::int32_t num_lanes = 0;
    std::int64_t num_tokens = 0;
  };
  /// The parts of one size share their inputs.
  struct Sized {
    PiecewiseShape shape;
    std::vector<Tensor> inputs;
    NamedViews input_views;  // of these
    SlotLease lease;         // what resources are told of it
  };
  struct Bucket {
    std::size_t sized = 0;
    std::int32_t part = 0;
    std::vector<RegionOutput> outputs;
    std::uint64_t layout = 0;  // of the columns of its own step
  };

  void add_sizes();
  void add_size(const PiecewiseShape& shape);
  void add_buckets();
  [[nodiscard]] Size size_of(const PiecewiseRun& what) const;
  [[nodiscard]] std::optional<std::size_t> find_bucket(const Size& size, std::int32_t part) const;
  [[nodiscard]] RegionMiss miss_of(const Size& size) const;
  [[nodiscard]] BatchColumns lanes_of(const PiecewiseRun& what,
                                      const ModelInputsFromEngine& step) const;
  [[nodiscard]] std::span<const std::int64_t> lengths_of(const PiecewiseRun& what,
                                                         const Size& size);
  [[nodiscard]] std::optional<RegionMiss> replay(std::size_t bucket, const PiecewiseRun& what,
                                                 const Size& size,
                                                 const ModelInputsFromEngine& step);
  void run_eagerly(const PiecewiseRun& what, const Size& size, const ModelInputsFromEngine& step,
                   bool declares);
  [[nodiscard]] ConstDeviceView input_of(const PiecewiseRun& what, std::string_view name) const;
  void copy_inputs(const PiecewiseRun& what, const Sized& sized) const;
  [[nodiscard]] NamedViews call_captured(const Bucket& bucket);
  void place_outputs(const NamedViews& outputs, const PiecewiseShape& shape);

  std::int32_t number_;
  const PiecewiseConfig& config_;
  std::int64_t seq_len_;  // of every lane; 0: they differ
  const std::vector<std::int64_t>* token_counts_;
  StreamRef stream_;
  GraphRunner& graphs_;
  TensorAllocator& allocator_;
  std::unique_ptr<PiecewiseStep> own_step_;  // null: it declares none

  std::vector<Sized> sizes_;
  SharedTensors inputs_;
  SharedTensors outputs_;
  std::size_t first_bucket_ = 0;
  std::vector<Bucket> buckets_;
  NamedViews eager_inputs_;  // those that captures read, in their order
  std::vector<RegionOutput> eager_outputs_;
  std::vector<std::int64_t> seq_lens_;
  std::uint64_t num_runs_ = 0;
  RegionCounts counts_;

  // Of captures.
  std::vector<bool> is_probed_;  // by part: where its outputs lie is known
  StepContext capture_context_;
};

}  // namespace rigel
