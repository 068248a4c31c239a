#include "server/api/text_calls.h"

#include "server/api/chat_messages.h"
#include "server/api/json_fields.h"

#include <fmt/core.h>

#include <limits>

namespace rigel::server {
namespace {

/// Parses an object and lets `read` fill a call from its fields.
template <typename Call, typename Read>
Parsed<Call> parse_call(std::string_view text, const Read& read) {
  Parsed<Json> document = parse_object(text);
  if (!document.ok()) {
    return std::move(document.error());
  }
  JsonFields fields(document.value());
  Call call;
  read(fields, call);
  if (fields.error()) {
    return *fields.error();
  }
  call.unknown_fields = fields.unknown_fields();
  return call;
}

void require(JsonFields& fields, std::string_view name, bool was_read) {
  if (!was_read) {
    fields.fail(name, fmt::format("{} is required", name));
  }
}

}  // namespace

Parsed<TokenizeCall> parse_tokenize_body(std::string_view text) {
  return parse_call<TokenizeCall>(text, [](JsonFields& fields, TokenizeCall& call) {
    fields.string("model", call.model);
    if (fields.find("messages") != nullptr) {
      call.prompt = read_chat_prompt(fields);
      return;
    }
    std::string prompt;
    require(fields, "prompt", fields.string("prompt", prompt));
    call.prompt = std::move(prompt);
    fields.boolean("add_special_tokens", call.add_special);
  });
}

Parsed<DetokenizeCall> parse_detokenize_body(std::string_view text, int vocab_size) {
  return parse_call<DetokenizeCall>(text, [vocab_size](JsonFields& fields, DetokenizeCall& call) {
    fields.string("model", call.model);
    require(fields, "tokens", fields.token_ids("tokens", vocab_size, call.ids));
  });
}

Parsed<TokenizeCall> parse_tokenize_line(std::string_view text) {
  return parse_call<TokenizeCall>(text, [](JsonFields& fields, TokenizeCall& call) {
    std::string line_text;
    require(fields, "text", fields.string("text", line_text));
    call.prompt = std::move(line_text);
    fields.boolean("add_special", call.add_special);
    fields.boolean("parse_special", call.parse_special);
  });
}

Parsed<DetokenizeCall> parse_detokenize_line(std::string_view text) {
  return parse_call<DetokenizeCall>(text, [](JsonFields& fields, DetokenizeCall& call) {
    // Any id is safe to detokenize: those outside the vocabulary have no text.
    require(fields, "ids",
            fields.token_ids("ids", std::numeric_limits<std::int32_t>::max(), call.ids));
    fields.boolean("skip_special", call.skip_special);
  });
}

Parsed<ScoreCall> parse_score_line(std::string_view text, int vocab_size) {
  return parse_call<ScoreCall>(text, [vocab_size](JsonFields& fields, ScoreCall& call) {
    std::string line_text;
    std::vector<std::int32_t> ids;
    const bool has_ids = fields.token_ids("ids", vocab_size, ids);
    const bool has_text = fields.string("text", line_text);
    if (has_ids == has_text) {
      return fields.fail("ids", fmt::format("exactly one of ids and text is required, got {}",
                                            has_ids + has_text));
    }
    if (has_ids && ids.empty()) {
      return fields.fail("ids", "ids must hold at least one token id, got []");
    }
    has_ids ? void(call.prompt = std::move(ids)) : void(call.prompt = std::move(line_text));
  });
}

Parsed<RenderCall> parse_render_line(std::string_view text) {
  return parse_call<RenderCall>(text, [](JsonFields& fields, RenderCall& call) {
    const auto take = [&](std::string_view name, bool is_object, std::string& out) {
      const Json* value = fields.find(name);
      if (value != nullptr && (is_object ? value->is_object() : value->is_array())) {
        out = value->dump();
      } else if (value != nullptr) {
        fields.fail(name, fmt::format("{} must be {}, got {}", name,
                                      is_object ? "an object" : "a list", shown(*value)));
      }
      return value != nullptr;
    };
    const auto take_string = [&](std::string_view name, std::optional<std::string>& out) {
      std::string value;
      if (fields.string(name, value)) {
        out = std::move(value);
      }
    };
    require(fields, "messages", take("messages", /*is_object=*/false, call.chat.messages_json));
    take("tools", /*is_object=*/false, call.chat.tools_json);
    take("documents", /*is_object=*/false, call.chat.documents_json);
    take("kwargs", /*is_object=*/true, call.chat.kwargs_json);
    fields.boolean("add_generation_prompt", call.chat.add_generation_prompt);
    take_string("bos_token", call.bos_token);
    take_string("eos_token", call.eos_token);
    take_string("now", call.now);
  });
}

}  // namespace rigel::server
