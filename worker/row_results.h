#pragma once

#include "engine/contract/host_rows.h"
#include "worker/request.h"

#include <cstdint>
#include <vector>

namespace rigel {

/// Log-probabilities of the token that row `row` of a step's rows chose: the token itself, then the best `num_top`.
void append_logprobs(const HostRows& rows, std::size_t row, std::int32_t token, int num_top,
                     std::vector<TokenLogprob>& out);

/// Where in a step's scored rows one prompt's chunk lies.
struct ScoredChunk {
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  std::int32_t num_top = 0;
  bool ends_prompt = false;  // the last row's token is the prompt's last: nothing follows it
};

/// Appends a chunk's scores to those of its prompt.
void append_scores(const HostRows& rows, const ScoredChunk& chunk, PromptScores& scores);

}  // namespace rigel
