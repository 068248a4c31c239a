#pragma once

#include <cstdint>
#include <vector>

#include "engine/contract/batched_output.h"
#include "engine/resource.h"
#include "tensor/buffer.h"
#include "tensor/device.h"

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
  std::int32_t max_tokens = 0;  // of a step
  std::int32_t vocab_size = 0;
  std::int32_t max_top_logprobs = 0;
  std::int32_t num_penalty_slots = 0;  // rows with penalties at a time
  SamplerSignals signals;
};

/// From logits to the next token of each lane, and the state that this takes: the token each row sampled last (the device's
/// own loop-back into the next step) and, for rows with penalties, how often each token occurred.
///
/// Random numbers are keyed by the request's seed and the token's position alone, so they need no state.
class Sampler final : public Resource {
 public:
  Sampler(ResourceKey key, Device& device, const SamplerConfig& config);

  void ingest_request(const RequestInfo& info) override;
  void remove_request(RequestHandle handle, Epoch last_touch) override;
  void plan(const SubmoduleStep& step, StepContext& context) override;

  /// Enqueues log-probabilities, penalties, sampling and the loop-back for the lanes of the step's plan.
  ///   token_ids (T) i32: the step's input    logits (S, V) f32: overwritten
  void enqueue(const StepContext& context, const ConstDeviceView& token_ids,
               const DeviceView& logits, BatchedModelOutput& outputs) const;

  /// (R) i32: the token each row sampled last.
  [[nodiscard]] DeviceView last_tokens() const;
  /// Whether a request with penalties can be taken in.
  [[nodiscard]] bool has_free_penalty_slot() const { return !free_penalty_slots_.empty(); }
  [[nodiscard]] std::int64_t num_bytes() const;

 private:
  SamplerConfig config_;
  DeviceBuffer last_tokens_;     // (R) i32
  DeviceBuffer penalty_counts_;  // (slots, V) i32
  std::vector<std::int32_t> penalty_slots_;  // by row; -1: none
  std::vector<std::int32_t> free_penalty_slots_;
  std::vector<std::int32_t> fresh_penalty_slots_;  // not cleared yet for their new owner
};

}  // namespace rigel
