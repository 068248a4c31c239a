#include "tests/text/golden.h"
#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace rigel::text {
namespace {

using testing::ChatCase;

/// 2026-01-15 10:30:00, the clock of the golden data.
constexpr std::chrono::sys_seconds kNow{std::chrono::seconds{1768473000}};

ChatInput input_of(const std::string& json) {
  const Value given = parse_json(json);
  const Dictionary& fields = given.as_dictionary();
  const auto field = [&fields](const char* name) {
    const Value* value = fields.find(name);
    return value != nullptr ? *value : Value::none();
  };
  ChatInput input;
  input.messages = field("messages");
  input.tools = field("tools");
  input.documents = field("documents");
  input.add_generation_prompt = field("add_generation_prompt").is_true();
  input.bos_token = field("bos_token").as_string();
  input.eos_token = field("eos_token").as_string();
  input.extra = field("kwargs");
  input.now = kNow;
  return input;
}

std::map<std::string, std::vector<ChatCase>> cases_by_template() {
  std::map<std::string, std::vector<ChatCase>> cases;
  for (ChatCase& c : testing::read_chat_cases()) {
    cases[c.template_file].push_back(std::move(c));
  }
  return cases;
}

TEST(ChatTemplateGolden, RendersEveryConversationAsTransformersDoes) {
  int num_rendered = 0;
  int num_refused = 0;
  for (const auto& [file, cases] : cases_by_template()) {
    const ChatTemplate chat_template(testing::read_data_file("templates/" + file));
    for (const ChatCase& c : cases) {
      SCOPED_TRACE(file + ": " + c.conversation);
      const ChatInput input = input_of(c.input);
      if (c.error.empty()) {
        EXPECT_NO_THROW(EXPECT_EQ(chat_template.render(input), c.rendered));
        ++num_rendered;
        continue;
      }
      ++num_refused;
      try {
        chat_template.render(input);
        ADD_FAILURE() << "must fail: " << c.error << ": " << c.error_message;
      } catch (const TemplateError& error) {
        EXPECT_EQ(error.is_raised_by_template(), c.error == "raise_exception") << error.what();
        if (c.error == "raise_exception") {
          EXPECT_EQ(error.what(), c.error_message);
        } else if (c.error != "recursion") {
          EXPECT_THAT(error.what(), ::testing::HasSubstr(c.error_message));
        }
      }
    }
  }
  EXPECT_EQ(num_rendered, 378);
  EXPECT_EQ(num_refused, 55);
}

}  // namespace
}  // namespace rigel::text
