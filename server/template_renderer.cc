#include "server/template_renderer.h"

#include "text/chat_template.h"
#include "text/text_error.h"

#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <ctime>

namespace rigel::server {
namespace {

using std::chrono::sys_seconds;

/// The wall clock's time of day here, as if it were UTC.
sys_seconds local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return std::chrono::floor<std::chrono::seconds>(
      std::chrono::system_clock::from_time_t(timegm(&local)));
}

/// "2026-01-15T10:30:00", with a space instead of the T or without the time of day.
sys_seconds parse_iso_time(const std::string& text) {
  int year = 0;
  unsigned month = 0;
  unsigned day = 0;
  int hour = 0;
  int minute = 0;
  int second = 0;
  const int num_read = std::sscanf(text.c_str(), "%d-%u-%u%*[T ]%d:%d:%d", &year, &month, &day,
                                   &hour, &minute, &second);
  const std::chrono::year_month_day date{std::chrono::year{year}, std::chrono::month{month},
                                         std::chrono::day{day}};
  if (num_read < 3 || !date.ok()) {
    throw text::TextError(
        fmt::format("now must be an ISO time like 2026-01-15T10:30:00, got '{}'", text));
  }
  return std::chrono::sys_days{date} + std::chrono::hours{hour} + std::chrono::minutes{minute} +
         std::chrono::seconds{second};
}

text::Value parse_or_none(const std::string& json) {
  return json.empty() ? text::Value::none() : text::parse_json(json);
}

}  // namespace

TemplateRenderer::TemplateRenderer(const std::string& source, std::string bos_token,
                                   std::string eos_token)
    : template_(std::make_unique<const text::ChatTemplate>(source)),
      bos_token_(std::move(bos_token)),
      eos_token_(std::move(eos_token)) {}

TemplateRenderer::TemplateRenderer(TemplateRenderer&&) noexcept = default;

TemplateRenderer::~TemplateRenderer() = default;

std::string TemplateRenderer::render(const ChatPrompt& chat,
                                     const RenderOverrides& overrides) const {
  const text::Value messages = text::parse_json(chat.messages_json);
  text::ChatInput input;
  input.messages = overrides.messages_as_given ? messages : text::prepare_messages(messages);
  input.tools = parse_or_none(chat.tools_json);
  input.documents = parse_or_none(chat.documents_json);
  input.extra = parse_or_none(chat.kwargs_json);
  input.add_generation_prompt = chat.add_generation_prompt;
  input.bos_token = overrides.bos_token.value_or(bos_token_);
  input.eos_token = overrides.eos_token.value_or(eos_token_);
  input.now = overrides.now ? parse_iso_time(*overrides.now) : local_now();
  return template_->render(input);
}

}  // namespace rigel::server
