#pragma once

#include "engine/contract/batched_output.h"
#include "engine/contract/capture_key.h"
#include "engine/contract/engine_inputs.h"
#include "engine/contract/node_inputs.h"
#include "engine/staging.h"
#include "engine/tensor_inputs.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace rigel {

/// What a batch asks of a captured step.
struct BucketQuery {
  WalkId walk{};
  std::int32_t num_lanes = 0;
  std::int64_t num_tokens = 0;
  CgKey key;

  friend bool operator==(const BucketQuery&, const BucketQuery&) = default;
};

/// The captured steps of a node, as the engine's step sees them. Thread: worker.
class CapturedSteps {
 public:
  virtual ~CapturedSteps() = default;

  /// A slot that can replay such a batch; none where no capture fits. Each lease is given back by `release`.
  [[nodiscard]] virtual std::optional<SlotLease> lease(const BucketQuery& query) = 0;
  /// The row of every padding lane of the lease's bucket.
  [[nodiscard]] virtual const NodeInputs& padding_row(const SlotLease& lease) const = 0;
  /// Where the step's columns go, already reset: the addresses that the capture reads, and the copy to the device is part of
  /// it. Null: they go into the step's own staging.
  [[nodiscard]] virtual StepStaging* staging(const SlotLease& /*lease*/) { return nullptr; }
  /// Where the tensors of the step's rows go, in place of the memory that an eager step takes for them. Null: there.
  [[nodiscard]] virtual TensorInputs* tensor_inputs(const SlotLease& /*lease*/) { return nullptr; }
  /// Enqueues the captured step in place of `forward`. `inputs` are padded to the bucket.
  virtual void replay(const SlotLease& lease, const ModelInputsFromEngine& inputs,
                      BatchedModelOutput& outputs) = 0;
  /// The step was launched, or will not be: the slot is free for the next lease once the step's event has fired.
  virtual void release(const SlotLease& lease) noexcept = 0;
};

/// Why a step of a walk with captures ran eagerly.
enum class GraphMissReason : std::uint8_t {
  kDeclined,     // can_use_cuda_graphs said no
  kNoBucket,     // the batch spans two capture groups
  kNotCaptured,  // no capture of this shape
  kKeyMismatch,  // cg_key_info and the declared step disagree: a bug of the submodule
  kOverflow,     // more of something (page updates, biases) than a captured step has room for
};
inline constexpr std::size_t kNumGraphMissReasons = 5;

struct GraphMiss {
  WalkId walk{};
  GraphMissReason reason{};
  std::uint64_t count = 0;
};

/// Counts misses, so that none is silent.
class GraphMisses {
 public:
  void add(WalkId walk, GraphMissReason reason) {
    for (GraphMiss& miss : misses_) {
      if (miss.walk == walk && miss.reason == reason) {
        ++miss.count;
        return;
      }
    }
    misses_.push_back({walk, reason, 1});
  }
  [[nodiscard]] const std::vector<GraphMiss>& all() const { return misses_; }

 private:
  std::vector<GraphMiss> misses_;
};

}  // namespace rigel
