#pragma once

#include "engine/staging.h"
#include "engine/step_context.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rigel {

/// What the lanes of a step ask for together: what nobody asks for costs nothing more. It stays while the lanes do.
struct SamplingDemand {
  std::int64_t num_biases = 0;
  std::int64_t num_with_min_tokens = 0;  // lanes whose stop tokens are barred for a while
  std::int32_t max_logprobs = -1;
  bool has_penalties = false;

  [[nodiscard]] static SamplingDemand of(std::span<const SamplerStep::Lane> lanes);
};

/// Stop tokens that the lanes must not draw yet.
[[nodiscard]] std::int64_t count_barred(std::span<const SamplerStep::Lane> lanes);

/// What a staging block holds since the sampler last wrote there.
///
/// The columns of a lane that keeps its request hold already what they should; only token indices and positions are written in
/// every step.
struct StagedLanes {
  const StepStaging* staging = nullptr;
  std::uint64_t num_resets = 0;      // the block's, at that step
  const std::byte* begin = nullptr;  // of the columns; null: they hold nothing
  const std::byte* end = nullptr;
  std::size_t num_penalty_lanes = 0;
  std::size_t num_bias_places = 0;
  std::vector<RequestHandle> handles;           // by lane
  std::vector<std::int32_t> num_prompt_tokens;  // by lane
  SamplingDemand demand;
  std::int64_t num_barred = 0;

  [[nodiscard]] bool are_of(std::span<const SamplerStep::Lane> lanes) const;
  /// The request's lane is written anew when it comes next.
  void forget(RequestHandle handle);
};

/// The columns of one step's sampling lanes.
class SamplerColumns {
 public:
  struct Sizes {
    std::int64_t num_lanes = 0;
    std::int64_t num_penalty_lanes = 0;  // num_lanes, or 0 where no lane can have penalties
    std::int64_t num_bias_places = 0;
    std::int64_t num_barred_places = 0;
  };

  struct Contents {
    SamplingDemand demand;
    std::int64_t num_barred = 0;
    bool lanes_go_on = false;  // StagedLanes::are_of
  };

  /// Carves them out of the step's staging. Throws CheckError where it is full.
  SamplerColumns(StepStaging& staging, const Sizes& sizes);

  /// Whether what `staged` describes still stands in these columns: the block had no other step since.
  [[nodiscard]] bool hold(const StagedLanes& staged) const;
  /// Writes what differs from `staged`, which then describes these columns.
  void write(std::span<const SamplerStep::Lane> lanes, const Contents& contents,
             StagedLanes& staged) const;
  /// Gives the device's side of the columns to the plan.
  void give(SamplerPlan& plan) const;

 private:
  void write_lane(std::size_t index, const SamplerStep::Lane& lane) const;
  void write_biases(std::span<const SamplerStep::Lane> lanes, std::int64_t num_entries) const;
  void write_barred(std::span<const SamplerStep::Lane> lanes, std::int64_t num_entries) const;

  const StepStaging& staging_;
  StagedColumn<std::int32_t> token_indices_;
  StagedColumn<std::int32_t> positions_;
  StagedColumn<std::int32_t> lanes_;
  StagedColumn<std::int32_t> rows_;
  StagedColumn<float> temperature_;
  StagedColumn<std::int32_t> top_k_;
  StagedColumn<float> top_p_;
  StagedColumn<float> min_p_;
  StagedColumn<std::int64_t> seeds_;
  StagedColumn<std::int32_t> publish_;
  StagedColumn<std::int32_t> logprob_counts_;
  StagedColumn<std::int32_t> penalty_rows_;
  StagedColumn<float> repetition_;
  StagedColumn<float> presence_;
  StagedColumn<float> frequency_;
  StagedColumn<std::int32_t> bias_lanes_;
  StagedColumn<std::int32_t> bias_tokens_;
  StagedColumn<float> bias_values_;
  StagedColumn<std::int32_t> barred_lanes_;
  StagedColumn<std::int32_t> barred_tokens_;
};

}  // namespace rigel
