#pragma once

#include "engine/captured_outputs.h"
#include "engine/captured_steps.h"
#include "engine/contract/submodule.h"
#include "engine/graph_catalog.h"
#include "engine/padded_batch.h"
#include "engine/result_ring.h"
#include "engine/staging.h"
#include "engine/step_context.h"
#include "engine/step_runner.h"
#include "graphs/graph_runner.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rigel {

class PiecewiseRunners;

struct CaptureOptions {
  std::int32_t num_slots = 2;      // double buffers; at least as many as steps in flight
  std::int64_t staging_bytes = 0;  // of the columns of the largest captured step
};

/// The captured steps of one node: the copy of the staged columns, the splice of what rows bring on the device, all that the
/// submodule's forward enqueues, and the stop copy that takes its row outputs to the host. So a step is two driver calls, the
/// replay and its event. A slot's columns lie at the same addresses in every bucket, so all buckets share one staging block a
/// slot; results go where the step's number says. Host tensors that rows bring are copied into static buffers in front of the
/// replay, and tensors that a forward gives by request or packed are copied out of theirs behind it: one more call a tensor, for
/// submodules that have any.
///
/// Where the results have room for several turns, all behind the head of a step that repeats (the copy and the splice) is a loop
/// on the device, whose turns end like steps: the staged columns count up, and each turn's results have a place of their own. A
/// step with one turn is the same graph.
///
/// A bucket is captured over padding lanes alone, planned like any step under a lease; so nothing of a request is touched, and
/// resources give what varies in size its fixed place. Thread: worker.
class StepCaptures final : public CapturedSteps, private CaptureClient {
 public:
  /// Everything given outlives it. Throws CheckError for fewer slots than steps in flight.
  StepCaptures(StreamRef stream, NodeSubmodule& submodule, StepRunner& resources,
               ResultRing& results, const GraphCatalog& catalog, const CaptureOptions& options);
  ~StepCaptures() override;

  /// Captures what is left, whole steps before regions. A bucket that cannot be captured is a failure of its own; see
  /// failures() of the two runners.
  void capture_all();
  /// Captures one more bucket; false where none was left. For idle moments of a worker that serves already.
  bool capture_next();
  /// Buckets that are not captured yet.
  [[nodiscard]] std::size_t num_pending() const;
  [[nodiscard]] const GraphRunner& runner() const { return runner_; }
  /// What a bucket is called in metrics: its lanes, its tokens where lanes share them, the name of its capture key.
  [[nodiscard]] std::string bucket_name(std::size_t bucket) const;
  /// The captured regions of the node's forwards, for steps that run eagerly.
  [[nodiscard]] PiecewiseRunners& regions() { return *regions_; }
  [[nodiscard]] const PiecewiseRunners& regions() const { return *regions_; }
  /// The number of the bucket that was replayed last.
  [[nodiscard]] std::optional<std::size_t> last_replayed() const { return last_replayed_; }
  /// Device memory of the captured steps and regions: graphs, staging, what else only they read and write.
  [[nodiscard]] std::int64_t num_bytes() const;

  [[nodiscard]] std::optional<SlotLease> lease(const BucketQuery& query) override;
  [[nodiscard]] const NodeInputs& padding_row(const SlotLease& lease) const override;
  [[nodiscard]] StepStaging* staging(const SlotLease& lease) override;
  [[nodiscard]] TensorInputs* tensor_inputs(const SlotLease& lease) override;
  void replay(const SlotLease& lease, const ModelInputsFromEngine& inputs,
              BatchedModelOutput& outputs) override;
  void release(const SlotLease& lease) noexcept override;

 private:
  /// A bucket's rows and key, and what its replays give.
  struct Bucket {
    std::size_t config = 0;
    CgKey key;
    std::string key_name;
    std::shared_ptr<const NodeInputs> row;  // of every padding lane of a step
    /// By lane of the capture. It runs over as many tokens as the bucket has, lest what rows bring has another size there.
    std::vector<std::shared_ptr<const NodeInputs>> capture_rows;
    CapturedOutputs outputs;
    std::uint64_t layout = 0;  // of the staged columns
    bool repeats = false;
  };
  /// A slot's columns and its lease.
  struct Slot {
    std::unique_ptr<StepStaging> staging;
    GraphLease lease;
    bool is_used = false;  // since it was leased
  };

  void add_buckets(const BatchedGraphConfig& config);
  void add_buckets(const PackedGraphConfig& config);
  Bucket& add_bucket(const GraphConfig& config, BucketKind kind, std::int64_t num_tokens,
                     std::shared_ptr<const NodeInputs> padding_row,
                     std::vector<std::shared_ptr<const NodeInputs>> capture_rows);
  [[nodiscard]] Slot& slot_of(const SlotLease& lease) {
    return slots_[static_cast<std::size_t>(lease.slot)];
  }
  [[nodiscard]] SlotLease lease_of(const GraphLease& lease) const;
  [[nodiscard]] StaticInputs& tensors_of(std::size_t bucket) {
    return *tensors_[buckets_[bucket].config];
  }
  void enqueue_step();
  void check_repeatable() const;
  void take_outputs(const ModelInputsFromEngine& inputs);

  // CaptureClient
  void prepare(std::size_t bucket, std::int32_t slot) override;
  void enqueue() override;
  [[nodiscard]] bool repeats() const override { return buckets_[captured_bucket_].repeats; }
  void enqueue_turn(LoopCondition condition) override;
  void reset() noexcept override;

  StreamRef stream_;
  NodeSubmodule& submodule_;
  StepRunner& resources_;
  ResultRing& results_;
  GraphRunner runner_;
  CachingAllocator allocator_;  // of outputs that leave a replay
  std::vector<Bucket> buckets_;
  std::vector<std::unique_ptr<StaticInputs>> tensors_;  // by graph config
  std::vector<Slot> slots_;
  std::optional<std::size_t> last_replayed_;
  std::unique_ptr<PiecewiseRunners> regions_;

  // Of the capture in progress.
  std::vector<std::byte> scratch_;  // takes the columns: steps in flight may be reading the slot's
  SlotLease capture_lease_;
  std::size_t captured_bucket_ = 0;
  PaddedBatch padded_;
  std::vector<const NodeInputs*> capture_rows_;
  SubmoduleStep step_;
  StepContext context_;
  BatchedModelOutput outputs_;
  bool declares_ = false;
  bool is_admitted_ = false;
};

}  // namespace rigel
