#pragma once

#include "engine/contract/batched_output.h"
#include "engine/resource.h"
#include "engine/resources/sampler_columns.h"
#include "tensor/buffer.h"
#include "tensor/device.h"

#include <cstdint>
#include <span>
#include <vector>

namespace rigel {

/// The row outputs that a sampler gives.
struct SamplerSignals {
  SignalId token{};
  SignalId chosen_logprob{};
  SignalId top_ids{};
  SignalId top_logprobs{};
};

struct SamplerConfig {
  std::int32_t num_rows = 0;
  std::int32_t vocab_size = 0;
  std::int32_t max_top_logprobs = 0;
  SamplerSignals signals;
};

/// From logits to the next token of each lane, and the state that this takes: the token each row sampled last (the device's
/// own loop-back into the next step) and, for rows with penalties, how often each token occurred.
///
/// Random numbers are keyed by the request's seed and the token's position alone, so they need no state. A lane that
/// goes on is not written again: who changes a request's sampling parameters ingests it again, which keeps its counts.
class Sampler final : public Resource {
 public:
  Sampler(ResourceKey key, Device& device, const SamplerConfig& config);

  void ingest_request(const RequestInfo& info) override;
  void remove_request(RequestHandle handle, Epoch last_touch) override;
  /// Not where tokens are counted. Else nothing of a step stays but the token sampled last, which the next sample replaces: a
  /// loop that follows another begins with a token that was brought, or that a prefill has sampled.
  [[nodiscard]] bool can_truncate(RequestHandle handle) const override {
    return !owners_.at(static_cast<std::size_t>(handle.row)).has_penalties;
  }
  [[nodiscard]] bool fits_capture(const SubmoduleStep& step,
                                  const StepContext& context) const override;
  /// The tokens that a lane must not draw yet are the same in all turns.
  [[nodiscard]] std::int32_t admit_turns(const SubmoduleStep& step, const StepContext& context,
                                         std::int32_t num_turns) override;
  void add_counting_columns(const StepContext& context,
                            std::vector<ConstDeviceView>& columns) const override {
    columns.push_back(context.plan<SamplerPlan>(key()).positions);
  }
  void plan(const SubmoduleStep& step, StepContext& context) override;

  /// Requests here that want log-probabilities.
  [[nodiscard]] std::int32_t num_with_logprobs() const { return num_with_logprobs_; }

  /// Enqueues the counting of the step's prompt tokens, for rows with penalties, and of the tracked ones that its declaration
  /// names: in every step, whether a lane samples or not.
  ///   token_ids (T) i32: the step's input
  void enqueue_prompt_counts(const StepContext& context, const ConstDeviceView& token_ids) const;

  /// Enqueues log-probabilities, penalties, sampling and the loop-back for the lanes of the step's plan.
  ///   logits (S, V) f32: overwritten
  void enqueue(const StepContext& context, const DeviceView& logits,
               BatchedModelOutput& outputs) const;

  /// (R) i32: the token each row sampled last.
  [[nodiscard]] DeviceView last_tokens() const;
  /// Device memory of a sampler.
  [[nodiscard]] static std::int64_t bytes_of(const SamplerConfig& config);

 private:
  /// What few requests ask for.
  struct Owner {
    RequestHandle handle;
    bool wants_logprobs = false;
    bool has_penalties = false;
  };
  /// What fits_capture has found out about a step's lanes, for the plan that follows it.
  struct Examined {
    const StepStaging* staging = nullptr;  // null: nothing
    std::uint64_t num_resets = 0;          // of `staging`
    std::span<const SamplerStep::Lane> lanes;
    SamplerColumns::Contents contents;
  };

  void set_owner(std::int32_t row, const Owner& owner);
  [[nodiscard]] SamplerColumns::Contents examine(std::span<const SamplerStep::Lane> lanes,
                                                 const StepStaging& staging) const;
  [[nodiscard]] SamplerColumns::Contents take_examined(std::span<const SamplerStep::Lane> lanes,
                                                       const StepStaging& staging);
  /// Biases, and barred tokens, that a captured step has room for. An entry costs 12 bytes of the step's copy, used or not;
  /// OpenAI's interface lets a request bring 300.
  [[nodiscard]] static std::int64_t captured_entries(std::size_t num_lanes);
  void clear_fresh_counts(const StepContext& context);
  [[nodiscard]] const StagedLanes* find_staged(const StepStaging& staging) const;
  [[nodiscard]] StagedLanes& staged_in(const StepStaging& staging);
  void plan_lanes(const SamplerStep& step, StepContext& context, SamplerPlan& plan);
  void plan_prompt_marks(StepContext& context, SamplerPlan& plan) const;
  void plan_tracked_tokens(const SamplerStep& step, StepContext& context, SamplerPlan& plan) const;
  void enqueue_logprobs(const StepContext& context, const SamplerPlan& plan,
                        const ConstDeviceView& raw_logits, BatchedModelOutput& outputs) const;
  [[nodiscard]] DeviceView counts() const;

  SamplerConfig config_;
  DeviceBuffer last_tokens_;     // (R) i32
  DeviceBuffer penalty_counts_;  // (R, V) i32; used by rows with penalties
  DeviceBuffer
      raw_logits_;  // (R, V) f32: kept where penalties change what log-probabilities are taken of
  DeviceBuffer tokens_;           // (R) i32
  DeviceBuffer flags_;            // (R) i32
  DeviceBuffer chosen_logprobs_;  // (R) f32
  DeviceBuffer top_ids_;          // (R, K) i32
  DeviceBuffer top_logprobs_;     // (R, K) f32
  std::vector<std::int32_t>
      fresh_rows_;             // with penalties, and still the counts of an earlier owner
  std::vector<Owner> owners_;  // by row
  std::int32_t num_with_logprobs_ = 0;
  std::int32_t num_with_penalties_ = 0;
  std::vector<StagedLanes> staged_;  // by staging block: a few
  mutable Examined examined_;
};

}  // namespace rigel
