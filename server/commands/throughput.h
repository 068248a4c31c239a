#pragma once

#include "worker/service.h"

#include <cstdint>

namespace rigel::server {

struct ThroughputCase {
  int concurrency = 1;
  int input_len = 128;     // tokens a prompt
  int output_len = 128;    // tokens an answer; at least 2
  std::uint64_t seed = 0;  // of the random prompts
};

struct Throughput {
  std::int64_t prompt_tokens = 0;  // of all requests
  std::int64_t new_tokens = 0;
  double prefill_tokens_per_s =
      0.0;  // prompt tokens until the last first token, nothing else running
  double decode_tokens_per_s =
      0.0;  // while all requests decode: from the last first token to the first end
  double total_tokens_per_s = 0.0;  // prompt and new tokens from the first submit to the last end
};

/// Runs `concurrency` requests with random prompts together, twice: for one token each (prefill), then in full (decode and
/// total). Blocks. Throws std::runtime_error if the service refuses or fails one of them. Precondition: the service has a
/// row for each request, otherwise they never all decode and the decode rate is 0.
[[nodiscard]] Throughput measure_throughput(InferenceService& service, const ThroughputCase& what);

}  // namespace rigel::server
