#pragma once

#include "tensor/tensor.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rigel {

/// How the next token is chosen and when a request ends. Field names and defaults are those of the HTTP interface.
struct SamplingParams {
  int max_tokens = 16;
  int min_tokens = 0;
  float temperature = 1.0f;         // 0: greedy
  float top_p = 1.0f;               // (0, 1]
  int top_k = 0;                    // 0: off
  float min_p = 0.0f;               // [0, 1]
  float repetition_penalty = 1.0f;  // > 0; prompt and output tokens
  float presence_penalty = 0.0f;    // output tokens
  float frequency_penalty = 0.0f;   // output tokens
  std::optional<std::uint64_t> seed;
  std::vector<std::pair<std::int32_t, float>> logit_bias;
  std::vector<std::string> stop;
  std::vector<std::int32_t> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop_in_output = false;
  bool skip_special_tokens = true;
  std::optional<int> logprobs;  // alternatives reported beside each generated token
};

/// What a request brings to one input of one node, by the names of a composite model's definition.
struct RequestInput {
  std::string node;
  std::string input;
  std::vector<Tensor> tensors;  // none: the signal alone
};

/// A value that a node of a composite model gives the client.
struct OutputValue {
  std::string_view name;  // of the signal
  Tensor tensor;          // on the host; a listener that keeps it copies it
};

/// A prompt and what to do with it.
struct GenerationRequest {
  std::vector<std::int32_t> prompt;  // at least one token; of a composite model: none
  std::vector<RequestInput> inputs;  // of a composite model
  SamplingParams sampling;
  std::optional<int>
      prompt_top;  // score the prompt, with this many best tokens a position; 0: log-probabilities alone
  bool keep_last_logits = false;  // with prompt_top: the logits after the last prompt token
  std::string label;              // the caller's name for it, for the log only
};

enum class FinishReason : std::uint8_t { kStop, kLength, kCancelled, kError };

/// "stop", "length", "abort", "error": the names of the HTTP interface.
[[nodiscard]] std::string_view name_of(FinishReason reason);

struct TokenLogprob {
  std::int32_t id;
  float logprob;  // natural logarithm, of the raw logits: before penalties and temperature
};

struct GeneratedToken {
  std::int32_t id;
  std::vector<TokenLogprob> logprobs;  // where asked for: the chosen token first, then the best k
};

/// Log-probabilities of a given text of n tokens.
struct PromptScores {
  std::vector<float> logprobs;                 // [n - 1]: of token i + 1 after tokens 0..i
  std::vector<std::vector<TokenLogprob>> top;  // [n]: the best tokens after tokens 0..i
  std::vector<float> last_logits;              // [vocabulary], where asked for
};

/// A piece of a request's answer. `text` is complete UTF-8 and final: nothing of it will be taken back.
struct OutputDelta {
  std::string_view text;
  std::span<const GeneratedToken> tokens;
  std::optional<FinishReason> finish;   // in the last piece
  std::string_view stop_string;         // the stop string that ended the request, if one did
  std::string_view error;               // with kError: what went wrong
  std::span<const OutputValue> values;  // of a composite model
  const PromptScores* prompt_scores = nullptr;  // in the last piece of a scoring request
  int num_prompt_tokens = 0;
  int num_cached_tokens = 0;  // prompt tokens whose keys and values came from the prefix cache
};

/// Receives a request's answer, in order, on the dispatcher thread. Must not block; must not throw.
class OutputListener {
 public:
  virtual ~OutputListener() = default;
  virtual void on_delta(const OutputDelta& delta) = 0;
};

}  // namespace rigel
