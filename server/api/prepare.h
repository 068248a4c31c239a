#pragma once

#include "server/api/generation_call.h"
#include "server/text_codec.h"

#include <string_view>
#include <vector>

namespace rigel::server {

/// Turns a prompt into token ids: chats through the template (whose special tokens are recognised, none added), texts
/// with special tokens added if `add_special`. Errors: 400, about `field`, which is what the caller calls the prompt.
[[nodiscard]] Parsed<std::vector<std::int32_t>> prompt_ids(const Prompt& prompt, bool add_special,
                                                           const TextCodec& codec,
                                                           std::string_view field);

/// One request a choice, in the order of the answer's choices: prompt 0 choice 0, prompt 0 choice 1, ...
/// Answers end at the context's end at the latest; a chat that names no length may go on until there. With a seed, choice i of
/// a prompt draws from seed + i.
/// Errors: 400, with both numbers where a prompt is longer than the context, and for what needs a tokenizer where there is none.
[[nodiscard]] Parsed<std::vector<GenerationRequest>> prepare_requests(const GenerationCall& call,
                                                                      const TextCodec& codec,
                                                                      const ServiceLimits& limits);

}  // namespace rigel::server
