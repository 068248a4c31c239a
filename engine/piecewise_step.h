#pragma once

#include "engine/contract/submodule.h"
#include "engine/padded_batch.h"
#include "engine/staging.h"
#include "engine/step.h"
#include "engine/step_context.h"
#include "engine/step_runner.h"
#include "tensor/allocator.h"
#include "tensor/stream.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rigel {

/// The step that a region has of its own on the resources of its node, within the step whose forward runs it: declared,
/// admitted and planned when the region runs, committed behind its replay.
///
/// A captured region reads its columns at one place on the device. The host writes those of each run to pinned memory that
/// lives as long as the outer step, and a copy in front of the replay takes them there in stream order; so a bucket needs one
/// graph, whatever is in flight and however often a step runs the region. Thread: worker.
class PiecewiseStep {
 public:
  /// `staging_bytes`: of the columns of its largest run.
  PiecewiseStep(StreamRef stream, const PiecewiseConfig& config, StepRunner& resources,
                std::int64_t staging_bytes);

  /// Admits and plans a run over padding alone, which is captured and not committed: `reset` ends it.
  void begin_capture(const SlotLease& lease, std::span<const std::int64_t> seq_lens);
  /// Admits and plans a run of these lanes, padded to the lease, and enqueues the copy of its columns. False: they have no room
  /// in the capture, and nothing has changed. Throws CheckError where it is refused, or its columns are not those of
  /// `layout`.
  [[nodiscard]] bool begin_replay(const BatchColumns& lanes, std::span<const std::int64_t> seq_lens,
                                  const SlotLease& lease, Epoch epoch, std::uint64_t layout);
  /// The same for a run that is enqueued launch by launch, with its columns in the outer step's staging.
  void begin_eager(const BatchColumns& lanes, std::span<const std::int64_t> seq_lens,
                   const StepContext& outer);
  /// The run was enqueued.
  void commit();
  /// The run will not be, or has been already.
  void reset() noexcept;

  /// What the callable gets: the outer forward's inputs, narrowed to the run's lanes, with this step.
  [[nodiscard]] ModelInputsFromEngine inputs(const ModelInputsFromEngine& outer) const;
  /// Of the columns that were planned last.
  [[nodiscard]] std::uint64_t layout() const { return staging_.layout(); }
  [[nodiscard]] std::int64_t num_bytes() const { return staging_.capacity_bytes(); }

 private:
  void declare(const BatchColumns& lanes, std::span<const std::int64_t> seq_lens,
               std::int64_t num_tokens);
  void admit();
  [[nodiscard]] std::span<const std::int64_t> padded(std::span<const std::int64_t> seq_lens,
                                                     const SlotLease& lease);
  [[nodiscard]] std::byte* pinned_columns(Epoch epoch);

  StreamRef stream_;
  const PiecewiseConfig& config_;
  StepRunner& resources_;
  StepStaging staging_;
  std::vector<std::byte> scratch_;  // takes the columns of a capture
  StepContext context_;
  PaddedBatch padded_;
  NodeInputs padding_row_;
  SubmoduleStep step_;
  std::vector<std::int64_t> seq_lens_;
  bool is_admitted_ = false;

  /// Columns of the runs of a step in flight.
  struct Held {
    Epoch epoch = 0;
    std::vector<Tensor> columns;
  };
  PinnedPool pinned_;
  std::vector<Held> held_;  // of the steps that may be in flight, in turn
};

}  // namespace rigel
