#pragma once

#include "server/api/generation_call.h"
#include "server/api/json_fields.h"

namespace rigel::server {

/// Reads `messages`, `tools`, `documents`, `chat_template_kwargs` and `add_generation_prompt` and puts the messages into
/// the form that chat templates are written for: text parts joined by line breaks, keys that are null dropped, a
/// message's reasoning under both names that templates use (what transformers does before it renders).
/// What is wrong is left in `fields`.
[[nodiscard]] ChatPrompt read_chat_prompt(JsonFields& fields);

}  // namespace rigel::server
