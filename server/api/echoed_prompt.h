#pragma once

#include "server/text_codec.h"
#include "worker/request.h"

#include <span>
#include <vector>

namespace rigel::server {

/// The tokens of a prompt that is repeated before its answer, with what an answer says about its own.
struct EchoedPrompt {
  std::vector<GeneratedToken>
      tokens;  // the first one has no log-probabilities: nothing stands before it
  std::vector<std::size_t> text_offsets;  // [tokens]: code points of the echoed text before each
};

/// `scores` are of `ids`. `skip_special`: the echoed text has no special tokens.
[[nodiscard]] EchoedPrompt echoed_prompt(std::span<const std::int32_t> ids,
                                         const PromptScores& scores, bool skip_special,
                                         const TextCodec& codec);

}  // namespace rigel::server
