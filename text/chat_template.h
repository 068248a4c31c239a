#pragma once

#include "text/template/template_error.h"
#include "text/value.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace rigel::text {

namespace chat {
struct Template;
}

/// What a chat template is given.
struct ChatInput {
  Value messages;   // a list of dictionaries
  Value tools;      // none where there are none: templates ask `tools is not none`
  Value documents;  // the same
  bool add_generation_prompt = true;
  std::string bos_token;
  std::string eos_token;
  /// More variables, as a dictionary (or none). They hide those above.
  Value extra;
  /// The clock of strftime_now, as the local time to show; a template that asks for it fails without.
  std::optional<std::chrono::sys_seconds> now;
};

/// A chat template in Jinja2's language, in the environment of Hugging Face's transformers.
///
/// The language: for, if, set, macro, filter, break, continue, generation; the filters, tests, methods and
/// functions listed in text/template/. Inheritance, includes, recursive loops and call blocks are not there.
/// Thread: any (immutable): renders may run at the same time.
class ChatTemplate {
 public:
  /// Throws TemplateError, naming line and construct, on what this interpreter does not have.
  explicit ChatTemplate(std::string_view source);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// The conversation as text for the model. Throws TemplateError: is_raised_by_template() if the template
  /// itself refused it (`what()` is for the user), else what did not fit and at which line.
  /// Cost: O(output) for the usual templates.
  std::string render(const ChatInput& input) const;

 private:
  std::unique_ptr<const chat::Template> template_;
};

/// Messages as transformers gives them to a template: entries that are null are dropped, and reasoning
/// (`reasoning_content`, `thinking` or `reasoning`) is under both `thinking`, in front, and `reasoning_content`.
Value prepare_messages(const Value& messages);

}  // namespace rigel::text
