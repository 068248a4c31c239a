#include "server/api/echoed_prompt.h"

#include "server/api/answers.h"

namespace rigel::server {

EchoedPrompt echoed_prompt(std::span<const std::int32_t> ids, const PromptScores& scores,
                           bool skip_special, const TextCodec& codec) {
  const std::vector<std::string> pieces = codec.pieces(ids, skip_special);
  EchoedPrompt prompt;
  std::size_t text_offset = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    GeneratedToken& token =
        prompt.tokens.emplace_back(GeneratedToken{.id = ids[i], .logprobs = {}});
    if (i > 0) {
      const std::vector<TokenLogprob>& top = scores.top[i - 1];
      token.logprobs.push_back({.id = ids[i], .logprob = scores.logprobs[i - 1]});
      token.logprobs.insert(token.logprobs.end(), top.begin(), top.end());
    }
    prompt.text_offsets.push_back(text_offset);
    text_offset += num_code_points(pieces[i]);
  }
  return prompt;
}

}  // namespace rigel::server
