#include "server/api/chat_messages.h"

#include <fmt/core.h>

namespace rigel::server {
namespace {

/// The texts of a content list, joined by line breaks; nothing if a part is not text.
std::optional<std::string> joined_text(const Json& parts) {
  std::string text;
  bool first = true;
  for (const Json& part : parts) {
    if (!part.is_object() || part.value("type", Json()) != "text" ||
        !part.value("text", Json()).is_string()) {
      return std::nullopt;
    }
    text += first ? "" : "\n";
    text += part["text"].get<std::string>();
    first = false;
  }
  return text;
}

/// Checks one message and makes its content a string. Returns what is wrong, or nothing.
std::optional<std::string> check_message(Json& message) {
  if (!message.is_object()) {
    return fmt::format("must hold objects, got {}", shown(message));
  }
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) {
    return fmt::format("must each have a role that is a string, got {}", shown(message));
  }
  const auto content = message.find("content");
  const bool has_content = content != message.end();
  if (has_content && content->is_array()) {
    std::optional<std::string> text = joined_text(*content);
    if (!text) {
      return fmt::format("must have contents made of text parts alone, got {}", shown(*content));
    }
    *content = std::move(*text);
  } else if (has_content && !content->is_string() && !content->is_null()) {
    return fmt::format("must have a content that is a string, a list of text parts or null, got {}",
                       shown(*content));
  }
  return std::nullopt;
}

std::string read_object_list(JsonFields& fields, std::string_view name) {
  const Json* list = fields.find(name);
  if (list == nullptr) {
    return {};
  }
  bool all_objects = list->is_array();
  for (std::size_t i = 0; all_objects && i < list->size(); ++i) {
    all_objects = (*list)[i].is_object();
  }
  if (!all_objects) {
    fields.fail(name, fmt::format("{} must be a list of objects, got {}", name, shown(*list)));
    return {};
  }
  return list->empty() ? std::string() : list->dump();
}

}  // namespace

ChatPrompt read_chat_prompt(JsonFields& fields) {
  ChatPrompt prompt;
  const Json* given = fields.find("messages");
  if (given == nullptr || !given->is_array() || given->empty()) {
    fields.fail("messages", fmt::format("messages must be a list of at least one message, got {}",
                                        given == nullptr ? "null" : shown(*given)));
    return prompt;
  }
  Json messages = *given;
  for (Json& message : messages) {
    if (const auto wrong = check_message(message)) {
      fields.fail("messages", "messages " + *wrong);
      return prompt;
    }
  }
  prompt.messages_json = messages.dump();
  prompt.tools_json = read_object_list(fields, "tools");
  prompt.documents_json = read_object_list(fields, "documents");
  if (const Json* kwargs = fields.find("chat_template_kwargs")) {
    if (kwargs->is_object()) {
      prompt.kwargs_json = kwargs->dump();
    } else {
      fields.fail("chat_template_kwargs",
                  fmt::format("chat_template_kwargs must be an object, got {}", shown(*kwargs)));
    }
  }
  fields.boolean("add_generation_prompt", prompt.add_generation_prompt);
  return prompt;
}

}  // namespace rigel::server
