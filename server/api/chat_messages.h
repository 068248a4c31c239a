#pragma once

#include "server/api/generation_call.h"
#include "server/api/json_fields.h"

namespace rigel::server {

/// Reads `messages`, `tools`, `documents`, `chat_template_kwargs` and `add_generation_prompt`. Contents in list form become
/// strings, their texts joined by line breaks: what most templates are written for. What is wrong is left in `fields`.
[[nodiscard]] ChatPrompt read_chat_prompt(JsonFields& fields);

}  // namespace rigel::server
