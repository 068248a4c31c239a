#include "text/chat_template.h"

#include "text/template/evaluator.h"
#include "text/template/operations.h"
#include "text/template/parser.h"

#include <fmt/core.h>

#include <ctime>

namespace rigel::text {
namespace {

using chat::Arguments;
using chat::Parameters;

/// range(end), range(begin, end), range(begin, end, step), at most as long as Jinja2's sandbox allows.
Value range(const Arguments& arguments) {
  const Parameters parameters("range", {"start", "stop", "step"}, arguments);
  const bool has_begin = parameters.has(1);
  const int64_t begin = has_begin ? parameters.integer(0, 0) : 0;
  const int64_t end = parameters.integer(has_begin ? 1 : 0, 0);
  const int64_t step = parameters.integer(2, 1);
  constexpr std::size_t kMaxItems = 100000;
  if (step == 0) {
    throw TextError("range() arg 3 must not be zero");
  }
  ValueList numbers;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (numbers.size() == kMaxItems) {
      throw TextError(fmt::format("range() gives more than {} items", kMaxItems));
    }
    numbers.push_back(Value::integer(i));
    if (__builtin_add_overflow(i, step, &i)) {
      break;
    }
  }
  return Value::list(std::move(numbers));
}

Value raise_exception(const Arguments& arguments) {
  const Parameters parameters("raise_exception", {"message"}, arguments);
  throw TemplateError::raised(to_text(parameters.value(0)));
}

Value format_time(const std::optional<std::chrono::sys_seconds>& now, const Arguments& arguments) {
  const Parameters parameters("strftime_now", {"format"}, arguments);
  if (!now) {
    throw TextError("strftime_now() needs a clock, and none was given");
  }
  const std::time_t seconds = std::chrono::system_clock::to_time_t(*now);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  // A mark in front tells an empty result from one that did not fit.
  const std::string format = "." + parameters.required_text(0);
  std::string text(format.size() * 32 + 64, '\0');
  const std::size_t size = std::strftime(text.data(), text.size(), format.c_str(), &parts);
  if (size == 0) {
    throw TextError("strftime_now() got a format that it cannot write");
  }
  return Value::string(text.substr(1, size - 1));
}

/// `dict(a=1)`, which templates use for lack of a literal's convenience.
Value make_dictionary(const Arguments& arguments) {
  Dictionary entries;
  for (const Value& given : arguments.positional) {
    if (!given.is(Value::Kind::kDictionary)) {
      throw TextError("dict() takes dictionaries and named values");
    }
    for (const auto& [key, value] : given.as_dictionary().entries()) {
      entries.set(key, value);
    }
  }
  for (const auto& [name, value] : arguments.keywords) {
    entries.set(Value::string(name), value);
  }
  return Value::dictionary(std::move(entries));
}

Dictionary variables_of(const ChatInput& input) {
  Dictionary variables;
  const auto set = [&variables](const char* name, Value value) {
    variables.set(Value::string(name), std::move(value));
  };
  set("messages", input.messages);
  set("tools", input.tools);
  set("documents", input.documents);
  set("add_generation_prompt", Value::boolean(input.add_generation_prompt));
  set("bos_token", Value::string(input.bos_token));
  set("eos_token", Value::string(input.eos_token));
  if (input.extra.is(Value::Kind::kDictionary)) {
    for (const auto& [name, value] : input.extra.as_dictionary().entries()) {
      variables.set(name, value);
    }
  }
  return variables;
}

Value prepare_message(const Value& message) {
  if (!message.is(Value::Kind::kDictionary)) {
    return message;
  }
  const Dictionary& given = message.as_dictionary();
  Value reasoning;
  for (const std::string_view name : {"reasoning_content", "thinking", "reasoning"}) {
    const Value* value = given.find(name);
    if (value != nullptr && !value->is_none()) {
      reasoning = *value;
      break;
    }
  }
  Dictionary prepared;
  if (!reasoning.is_none()) {
    prepared.set(Value::string("thinking"), reasoning);
  }
  for (const auto& [name, value] : given.entries()) {
    if (!value.is_none()) {
      prepared.set(name, value);
    }
  }
  if (!reasoning.is_none()) {
    prepared.set(Value::string("thinking"), reasoning);
    prepared.set(Value::string("reasoning_content"), reasoning);
  }
  return Value::dictionary(std::move(prepared));
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source)
    : template_(std::make_unique<const chat::Template>(chat::parse_template(source))) {}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

std::string ChatTemplate::render(const ChatInput& input) const {
  chat::Evaluator* running = nullptr;
  Dictionary globals;
  const auto add = [&globals](const char* name, chat::Callable::Function function) {
    globals.set(Value::string(name), chat::make_callable(std::move(function)));
  };
  add("range", range);
  add("dict", make_dictionary);
  add("raise_exception", raise_exception);
  add("strftime_now",
      [&input](const Arguments& arguments) { return format_time(input.now, arguments); });
  add("namespace",
      [&running](const Arguments& arguments) { return running->make_namespace(arguments); });
  chat::Evaluator evaluator(*template_, globals, variables_of(input));
  running = &evaluator;
  return evaluator.render();
}

Value prepare_messages(const Value& messages) {
  if (!messages.is(Value::Kind::kList)) {
    return messages;
  }
  ValueList prepared;
  for (const Value& message : messages.items()) {
    prepared.push_back(prepare_message(message));
  }
  return Value::list(std::move(prepared));
}

}  // namespace rigel::text
