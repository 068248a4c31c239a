#pragma once

#include "server/api/generation_call.h"
#include "server/api/text_calls.h"

#include <memory>
#include <optional>
#include <string>

namespace rigel::text {
class ChatTemplate;
}

namespace rigel::server {

/// What a single call may put in the place of a model's own.
struct RenderOverrides {
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::optional<std::string> now;  // ISO time that strftime_now sees; default: the local time
  bool messages_as_given =
      false;  // else tidied as transformers does: null entries dropped, reasoning under both names
};

/// A chat template with the variables that it sees.
class TemplateRenderer {
 public:
  /// Throws text::TextError on a template that this build does not understand.
  TemplateRenderer(const std::string& source, std::string bos_token, std::string eos_token);
  TemplateRenderer(TemplateRenderer&&) noexcept;
  ~TemplateRenderer();

  /// Throws text::TextError with the template's own words where it refuses the conversation. Thread: any.
  [[nodiscard]] std::string render(const ChatPrompt& chat, const RenderOverrides& overrides) const;

 private:
  std::unique_ptr<const text::ChatTemplate> template_;
  std::string bos_token_;
  std::string eos_token_;
};

}  // namespace rigel::server
