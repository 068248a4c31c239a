#pragma once

// Random mixes of requests, and the answers that a service gives to them.

#include "text/tokenizer.h"
#include "worker/service.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rigel::testing {

/// A request, when it comes and when it is cancelled.
struct MixedRequest {
  GenerationRequest request;
  int arrives_after = 0;            // tokens that the whole mix was given before it is submitted
  std::optional<int> cancel_after;  // of its own tokens; 0: right after it was submitted
};

/// Requests that are in a service at the same time, the same for one seed: 3 to 12 with prompts of 1 to 200 tokens; greedy and
/// seeded sampling, penalties, biases, log-probabilities, several answers to one prompt, prompts that are scored, all kinds of
/// stops, cancels.
[[nodiscard]] std::vector<MixedRequest> make_request_mix(std::uint32_t seed,
                                                         std::int32_t vocab_size);

/// What a mix's text is made of: `vocab_size` tokens of one or two bytes, so that stop strings lie across tokens and
/// characters do, too. The first three ids are control tokens, 2 ends a generation.
[[nodiscard]] text::TokenizerSpec make_mix_vocabulary(std::int32_t vocab_size);

/// A whole answer.
struct MixedAnswer {
  std::vector<std::int32_t> ids;
  std::vector<TokenLogprob> logprobs;  // of all tokens, one after the other
  PromptScores scores;
  std::string text;
  FinishReason finish{};
  std::string stop_string;
  std::string error;
};

enum class Cancels : std::uint8_t { kIgnore, kObey };

/// Submits `mix` to `service`, each request at its time, and waits for the answers. A request that is refused has its message
/// as `error`.
[[nodiscard]] std::vector<MixedAnswer> run_mix(InferenceService& service,
                                               const std::vector<MixedRequest>& mix,
                                               Cancels cancels);

/// How `answer` differs from what the same request was answered when nobody cancelled; empty: it does not. Of a request that
/// may have been cancelled, what was delivered must be a beginning of it. Log-probabilities are compared bit by bit.
[[nodiscard]] std::string find_difference(const MixedRequest& request, const MixedAnswer& answer,
                                          const MixedAnswer& whole, Cancels cancels);

/// The request's parameters in one line, as far as they are not the defaults.
[[nodiscard]] std::string describe(const MixedRequest& request);

}  // namespace rigel::testing
