#pragma once

#include "engine/contract/ids.h"
#include "engine/contract/input_metadata.h"

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace rigel {

/// What the sampler of a node needs to know of a request; numbers only, checked before it gets here.
struct SamplingConfig {
  float temperature = 1.0f;
  float top_p = 1.0f;
  float min_p = 0.0f;
  int top_k = 0;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  int min_tokens = 0;
  int num_logprobs = -1;  // alternatives beside the chosen token; -1: no log-probabilities
  bool ignore_eos = false;
  std::vector<std::int32_t> stop_token_ids = {};
  std::vector<std::pair<std::int32_t, float>> logit_bias = {};

  [[nodiscard]] bool has_penalties() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
  }
};

/// What a request wants to know about its own prompt.
struct PromptScoring {
  int num_top = 0;                // best tokens a position
  bool keep_last_logits = false;  // the logits after the last token, too
};

/// Facts of one request that outlive a step. The worker owns and changes them between steps.
struct RequestInfo {
  RequestHandle handle;
  WalkId walk{};
  PartitionId partition{};
  std::uint64_t seed = 0;
  std::int32_t num_prompt_tokens = 0;
  std::int32_t max_tokens = 0;     // generated tokens
  std::int32_t max_length = 0;     // prompt and generated tokens; the context limit
  std::int32_t num_generated = 0;  // accepted so far
  std::int32_t num_cached_tokens =
      0;  // leading tokens that need not be computed: its input begins behind them
  SamplingConfig sampling;
  std::optional<PromptScoring> scoring;
  LoopCounters loop_counters;  // hooks read the step's snapshot instead, through RequestView
};

/// One request as the hooks of a step see it: the shared facts, and the step's own snapshot of the loop counters.
class RequestView {
 public:
  RequestView(const RequestInfo& info, const InputMetadata& metadata)
      : info_(&info), metadata_(&metadata) {}

  [[nodiscard]] const RequestInfo& info() const { return *info_; }
  [[nodiscard]] const InputMetadata& metadata() const { return *metadata_; }
  [[nodiscard]] std::int32_t loop_count(LoopId loop) const {
    return metadata_->loop_counters.count(loop);
  }

 private:
  const RequestInfo* info_;
  const InputMetadata* metadata_;
};

}  // namespace rigel
