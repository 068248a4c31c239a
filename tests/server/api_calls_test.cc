#include "server/api/generation_call.h"
#include "server/api/text_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace rigel::server {
namespace {

using ::testing::HasSubstr;

constexpr ServiceLimits kLimits{.max_model_len = 128, .vocab_size = 256};

Parsed<GenerationCall> parse(CallKind kind, const std::string& text) {
  return parse_generation_call(kind, text, kLimits);
}

std::string with_prompt(const std::string& fields) {
  return R"({"prompt": "x", )" + fields + "}";
}

TEST(GenerationCall, HasTheDefaultsOfTheInterface) {
  const auto call = parse(CallKind::kCompletion, R"({"prompt": "hello"})");
  ASSERT_TRUE(call.ok());
  const GenerationCall& it = call.value();
  EXPECT_EQ(std::get<std::string>(it.prompts.at(0)), "hello");
  EXPECT_EQ(it.sampling.max_tokens, 16);
  EXPECT_EQ(it.sampling.temperature, 1.0f);
  EXPECT_EQ(it.num_choices, 1);
  EXPECT_FALSE(it.stream);
  EXPECT_FALSE(it.max_tokens_given);
  EXPECT_FALSE(it.sampling.logprobs.has_value());
}

TEST(GenerationCall, ReadsEverySamplingField) {
  const auto call = parse(CallKind::kCompletion, with_prompt(R"(
      "max_tokens": 7, "min_tokens": 2, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "seed": -1,
      "repetition_penalty": 1.5, "presence_penalty": -1, "frequency_penalty": 2, "stop": ["a", "b"],
      "stop_token_ids": [3, 4], "ignore_eos": true, "include_stop_str_in_output": true, "skip_special_tokens": false,
      "logit_bias": {"5": -100, "6": 1.5}, "logprobs": 3, "n": 4)"));
  ASSERT_TRUE(call.ok()) << call.error().message;
  const SamplingParams& sampling = call.value().sampling;
  EXPECT_EQ(sampling.max_tokens, 7);
  EXPECT_EQ(sampling.min_tokens, 2);
  EXPECT_EQ(sampling.temperature, 0.5f);
  EXPECT_EQ(sampling.top_p, 0.9f);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_EQ(sampling.min_p, 0.1f);
  EXPECT_EQ(sampling.seed, ~std::uint64_t{0});
  EXPECT_EQ(sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(sampling.presence_penalty, -1.0f);
  EXPECT_EQ(sampling.frequency_penalty, 2.0f);
  EXPECT_THAT(sampling.stop, ::testing::ElementsAre("a", "b"));
  EXPECT_THAT(sampling.stop_token_ids, ::testing::ElementsAre(3, 4));
  EXPECT_TRUE(sampling.ignore_eos);
  EXPECT_TRUE(sampling.include_stop_in_output);
  EXPECT_FALSE(sampling.skip_special_tokens);
  EXPECT_THAT(sampling.logit_bias,
              ::testing::ElementsAre(::testing::Pair(5, -100.0f), ::testing::Pair(6, 1.5f)));
  EXPECT_EQ(sampling.logprobs, 3);
  EXPECT_EQ(call.value().num_choices, 4);
  EXPECT_TRUE(call.value().unknown_fields.empty());
}

TEST(GenerationCall, TakesNullForAbsent) {
  const auto call =
      parse(CallKind::kCompletion, with_prompt(R"("temperature": null, "stop": null, "seed": null,
      "logprobs": null, "stream": null, "stream_options": null, "logit_bias": null, "n": null, "model": null)"));
  ASSERT_TRUE(call.ok()) << call.error().message;
  EXPECT_EQ(call.value().sampling.temperature, 1.0f);
}

TEST(GenerationCall, TakesPromptsInAllFourForms) {
  const auto prompts = [](const std::string& prompt) {
    auto call = parse(CallKind::kCompletion, R"({"prompt": )" + prompt + "}");
    EXPECT_TRUE(call.ok()) << prompt;
    return call.ok() ? call.value().prompts : std::vector<Prompt>();
  };
  using Ids = std::vector<std::int32_t>;
  EXPECT_THAT(prompts(R"("a")"), ::testing::ElementsAre(Prompt("a")));
  EXPECT_THAT(prompts(R"(["a", "b"])"), ::testing::ElementsAre(Prompt("a"), Prompt("b")));
  EXPECT_THAT(prompts("[1, 2]"), ::testing::ElementsAre(Prompt(Ids{1, 2})));
  EXPECT_THAT(prompts("[[1, 2], [3]]"), ::testing::ElementsAre(Prompt(Ids{1, 2}), Prompt(Ids{3})));
}

TEST(GenerationCall, CollectsUnknownFields) {
  const auto call =
      parse(CallKind::kCompletion, with_prompt(R"("shiny": 1, "user": "me", "new": {"a": []})"));
  ASSERT_TRUE(call.ok());
  EXPECT_THAT(call.value().unknown_fields, ::testing::ElementsAre("shiny", "new"));
}

TEST(GenerationCall, JoinsTextPartsOfAChat) {
  const auto call = parse(CallKind::kChat, R"({"messages": [{"role": "user", "content":
      [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}], "max_completion_tokens": 5})");
  ASSERT_TRUE(call.ok()) << call.error().message;
  EXPECT_EQ(std::get<ChatPrompt>(call.value().prompts.at(0)).messages_json,
            R"([{"role":"user","content":"one\ntwo"}])");
  EXPECT_TRUE(call.value().max_tokens_given);
  EXPECT_EQ(call.value().sampling.max_tokens, 5);
}

TEST(GenerationCall, ChatsAskForLogprobsWithABooleanAndANumber) {
  const std::string chat = R"({"messages": [{"role": "user", "content": "x"}], )";
  EXPECT_EQ(parse(CallKind::kChat, chat + R"("logprobs": true})").value().sampling.logprobs, 0);
  EXPECT_EQ(parse(CallKind::kChat, chat + R"("logprobs": true, "top_logprobs": 4})")
                .value()
                .sampling.logprobs,
            4);
  EXPECT_EQ(parse(CallKind::kChat, chat + R"("top_logprobs": 4})").error().param, "top_logprobs");
  EXPECT_EQ(parse(CallKind::kChat, chat + R"("logprobs": 3})").error().param, "logprobs");
}

struct Wrong {
  const char* field;
  const char* value;
  const char* said;  // part of the message
};

TEST(GenerationCall, NamesFieldValueAndRangeOfWhatIsWrong) {
  const Wrong cases[] = {
      {"max_tokens", "0", "between 1 and"},
      {"max_tokens", "1.5", "integer"},
      {"max_tokens", "99999999999", "integer"},
      {"max_tokens", "18446744073709551615", "integer"},
      {"min_tokens", "-1", "0"},
      {"min_tokens", "17", "max_tokens (16)"},
      {"temperature", "-0.1", "between 0 and 2"},
      {"temperature", "2.1", "between 0 and 2"},
      {"temperature", "1e400", "JSON"},
      {"top_p", "0", "greater than 0 and at most 1"},
      {"top_p", "1.01", "greater than 0 and at most 1"},
      {"top_k", "-2", "between -1 and"},
      {"min_p", "1.5", "between 0 and 1"},
      {"repetition_penalty", "0", "greater than 0"},
      {"presence_penalty", "3", "between -2 and 2"},
      {"frequency_penalty", "-3", "between -2 and 2"},
      {"seed", "18446744073709551615", "integer"},
      {"n", "0", "between 1 and 128"},
      {"n", "129", "between 1 and 128"},
      {"logprobs", "21", "between 0 and 20"},
      {"stop", R"([""])", "empty"},
      {"stop_token_ids", "[256]", "between 0 and 255"},
      {"stop_token_ids", "[-1]", "between 0 and 255"},
      {"logit_bias", R"({"x": 1})", "between 0 and 255"},
      {"logit_bias", R"({"256": 1})", "between 0 and 255"},
      {"logit_bias", R"({"1": 101})", "between -100 and 100"},
      {"stream_options", R"({"include_usage": true})", "stream"},
      {"response_format", R"({"type": "json_object"})", "text"},
      {"suffix", R"("end")", "not available"},
      {"prompt", "[]", "not empty"},
      {"prompt", "[1, 256]", "between 0 and 255"},
      {"prompt", R"(["a", 1])", "alone"},
      {"prompt", R"([[1], "a"])", "alone"},
      {"prompt", "[[]]", "alone"},
  };
  for (const Wrong& wrong : cases) {
    std::string text =
        R"({"prompt": "x", ")" + std::string(wrong.field) + "\": " + wrong.value + "}";
    if (std::string(wrong.field) == "prompt") {
      text = R"({"prompt": )" + std::string(wrong.value) + "}";
    }
    const auto call = parse(CallKind::kCompletion, text);
    ASSERT_FALSE(call.ok()) << text;
    EXPECT_EQ(call.error().status, 400);
    EXPECT_THAT(call.error().message, HasSubstr(wrong.said)) << text;
    if (call.error().message.find("JSON") == std::string::npos) {
      EXPECT_EQ(call.error().param, wrong.field) << text;
      EXPECT_THAT(call.error().message, HasSubstr(wrong.field)) << text;
    }
  }
}

// Every known field with every JSON type that it does not take.
TEST(B_102, AFieldOfTheWrongTypeIsAlwaysA400) {
  enum Kind { kBoolean, kInteger, kNumber, kString, kTexts, kIds, kObject };
  const std::pair<const char*, Kind> fields[] = {{"max_tokens", kInteger},
                                                 {"max_completion_tokens", kInteger},
                                                 {"min_tokens", kInteger},
                                                 {"temperature", kNumber},
                                                 {"top_p", kNumber},
                                                 {"top_k", kInteger},
                                                 {"min_p", kNumber},
                                                 {"seed", kInteger},
                                                 {"repetition_penalty", kNumber},
                                                 {"presence_penalty", kNumber},
                                                 {"frequency_penalty", kNumber},
                                                 {"stop", kTexts},
                                                 {"stop_token_ids", kIds},
                                                 {"ignore_eos", kBoolean},
                                                 {"include_stop_str_in_output", kBoolean},
                                                 {"skip_special_tokens", kBoolean},
                                                 {"logit_bias", kObject},
                                                 {"logprobs", kInteger},
                                                 {"n", kInteger},
                                                 {"stream", kBoolean},
                                                 {"stream_options", kObject},
                                                 {"model", kString},
                                                 {"echo", kBoolean},
                                                 {"add_special_tokens", kBoolean},
                                                 {"response_format", kObject},
                                                 {"continue_final_message", kBoolean}};
  const std::pair<const char*, std::vector<Kind>> values[] = {
      {"true", {kBoolean}},
      {"1", {kInteger, kNumber}},
      {"0.5", {kNumber}},
      {R"("text")", {kString, kTexts}},
      {"[]", {kTexts, kIds}},
      {"[true]", {}},
      {"[{}]", {}},
      {"[[1]]", {}},
      {"{}", {kObject}},
      {R"({"a": {"b": []}})", {}},
      {R"("1")", {kString, kTexts}},
      {"-1e99", {}},
  };
  int num_cases = 0;
  for (const auto& [field, kind] : fields) {
    for (const auto& [value, fitting] : values) {
      if (std::find(fitting.begin(), fitting.end(), kind) != fitting.end()) {
        continue;
      }
      const auto call =
          parse(CallKind::kCompletion, with_prompt('"' + std::string(field) + "\": " + value));
      EXPECT_FALSE(call.ok()) << field << " took " << value;
      if (!call.ok()) {
        EXPECT_EQ(call.error().status, 400);
        EXPECT_EQ(call.error().param, field);
      }
      ++num_cases;
    }
  }
  EXPECT_GE(num_cases, 200);
  for (const auto& [value, fitting] : values) {
    if (std::string(value) != R"("text")" && std::string(value) != R"("1")") {
      EXPECT_FALSE(parse(CallKind::kChat, R"({"messages": )" + std::string(value) + "}").ok())
          << value;
    }
  }
}

TEST(GenerationCall, RefusesMalformedMessages) {
  for (const char* messages : {"[]", "null", R"(["x"])", "[{}]", R"([{"role": 1, "content": "x"}])",
                               R"([{"role": "user", "content": 5}])",
                               R"([{"role": "user", "content": [{"type": "image_url"}]}])",
                               R"([{"role": "user", "content": [1]}])",
                               R"([{"role": "user", "content": [{"type": "text"}]}])"}) {
    const auto call = parse(CallKind::kChat, R"({"messages": )" + std::string(messages) + "}");
    ASSERT_FALSE(call.ok()) << messages;
    EXPECT_EQ(call.error().param, "messages");
  }
}

TEST(GenerationCall, SurvivesWhatIsNoJson) {
  const std::string deep(100'000, '[');
  const std::string bodies[] = {
      "",   "{",    "nul", "[]", "\"x\"", "{\"prompt\": \"\xff\"}", "{\"a\":" + deep,
      deep, "{}{}", "\0"};
  for (const std::string& body : bodies) {
    const auto call = parse(CallKind::kCompletion, body);
    ASSERT_FALSE(call.ok()) << body.substr(0, 20);
    EXPECT_EQ(call.error().status, 400);
    EXPECT_THAT(call.error().message, HasSubstr("The request"));
  }
}

TEST(GenerationCall, RefusesObjectsWithAbsurdlyManyKeys) {
  std::string body = R"({"prompt": "x")";
  for (int i = 0; i < 200'000; ++i) {
    body += ", \"k" + std::to_string(i) + "\": 1";
  }
  const auto call = parse(CallKind::kCompletion, body + "}");
  ASSERT_FALSE(call.ok());
  EXPECT_THAT(call.error().message, HasSubstr("keys"));
}

// Cutting and flipping bytes of a good body must never do worse than an error.
TEST(GenerationCall, SurvivesDamagedBodies) {
  const std::string good =
      R"({"prompt": ["a", "b\u00e9"], "logit_bias": {"5": -1e2}, "stop": ["x"], "n": 2, "seed": 12,
      "stream": true, "stream_options": {"include_usage": true}, "temperature": 0.25})";
  ASSERT_TRUE(parse(CallKind::kCompletion, good).ok());
  std::uint32_t state = 12345;
  for (int i = 0; i < 20'000; ++i) {
    state = state * 1664525u + 1013904223u;
    std::string damaged = good.substr(0, i % 4 == 0 ? state % good.size() : good.size());
    for (std::uint32_t k = 0; k < 1 + state % 3 && !damaged.empty(); ++k) {
      state = state * 1664525u + 1013904223u;
      damaged[(state >> 8) % damaged.size()] = static_cast<char>(state >> 24);
    }
    const auto call = parse(CallKind::kCompletion, damaged);
    if (!call.ok()) {
      EXPECT_EQ(call.error().status, 400);
    }
  }
}

TEST(GenerationCall, LinesTakeExactlyOnePrompt) {
  EXPECT_TRUE(parse(CallKind::kLine, R"({"prompt": "x"})").ok());
  EXPECT_TRUE(parse(CallKind::kLine, R"({"prompt_ids": [1, 2]})").ok());
  EXPECT_TRUE(parse(CallKind::kLine, R"({"messages": [{"role": "user", "content": "x"}]})").ok());
  for (const char* line :
       {"{}", R"({"prompt": "x", "prompt_ids": [1]})", R"({"prompt": ["x"]})",
        R"({"prompt_ids": []})", R"({"prompt_ids": [300]})", R"({"prompt_ids": "x"})"}) {
    EXPECT_FALSE(parse(CallKind::kLine, line).ok()) << line;
  }
  EXPECT_EQ(parse(CallKind::kLine, R"({"messages": [{"role": "user", "content": "x"}]})")
                .value()
                .sampling.max_tokens,
            16);
}

TEST(GenerationCall, RefusesMoreAnswersThanItGives) {
  EXPECT_TRUE(parse(CallKind::kCompletion, with_prompt(R"("best_of": 1)")).ok());
  EXPECT_TRUE(
      parse(CallKind::kChat, R"({"messages": [{"role": "user"}], "n": 3, "best_of": 3})").ok());
  for (const char* fields : {R"("best_of": 2)", R"("n": 2, "best_of": 3)",
                             R"("n": 2, "best_of": 1)", R"("best_of": "1")"}) {
    const auto call = parse(CallKind::kCompletion, with_prompt(fields));
    ASSERT_FALSE(call.ok()) << fields;
    EXPECT_EQ(call.error().param, "best_of");
  }
}

TEST(GenerationCall, RefusesAStreamThatEchoesWithLogprobs) {
  EXPECT_TRUE(parse(CallKind::kCompletion, with_prompt(R"("echo": true, "logprobs": 1)")).ok());
  const auto call =
      parse(CallKind::kCompletion, with_prompt(R"("echo": true, "logprobs": 0, "stream": true)"));
  ASSERT_FALSE(call.ok());
  EXPECT_EQ(call.error().param, "echo");
  EXPECT_THAT(call.error().message, ::testing::AllOf(HasSubstr("logprobs"), HasSubstr("stream")));
}

TEST(TextCalls, KeepTheNamesOfUnknownFields) {
  using ::testing::ElementsAre;
  EXPECT_THAT(parse_tokenize_body(R"({"prompt": "x", "odd": 1})").value().unknown_fields,
              ElementsAre("odd"));
  EXPECT_THAT(parse_detokenize_body(R"({"tokens": [1], "odd": 1})", 9).value().unknown_fields,
              ElementsAre("odd"));
  EXPECT_THAT(parse_tokenize_line(R"({"text": "x", "odd": 1})").value().unknown_fields,
              ElementsAre("odd"));
  EXPECT_THAT(parse_detokenize_line(R"({"ids": [1], "odd": 1})").value().unknown_fields,
              ElementsAre("odd"));
  EXPECT_THAT(parse_score_line(R"({"ids": [1], "odd": 1})", 9).value().unknown_fields,
              ElementsAre("odd"));
  EXPECT_THAT(parse_render_line(R"({"messages": [], "odd": 1})").value().unknown_fields,
              ElementsAre("odd"));
  EXPECT_THAT(parse(CallKind::kCompletion,
                    with_prompt(R"("stream": true, "stream_options": {"odd": 1}, "even": 2)"))
                  .value()
                  .unknown_fields,
              ElementsAre("stream_options.odd", "even"));
}

TEST(TextCalls, TakeTheFieldsOfTheirCommands) {
  const auto tokenize = parse_tokenize_line(R"({"text": "x", "parse_special": true})");
  ASSERT_TRUE(tokenize.ok());
  EXPECT_TRUE(tokenize.value().add_special);
  EXPECT_TRUE(tokenize.value().parse_special);
  EXPECT_FALSE(parse_tokenize_line("{}").ok());
  EXPECT_THAT(parse_detokenize_line(R"({"ids": [1, 2], "skip_special": true})").value().ids,
              ::testing::ElementsAre(1, 2));
  EXPECT_FALSE(parse_detokenize_line(R"({"ids": [-1]})").ok());
  EXPECT_FALSE(parse_score_line(R"({"ids": [1], "text": "x"})", 256).ok());
  EXPECT_FALSE(parse_score_line(R"({"ids": []})", 256).ok());
  EXPECT_TRUE(parse_score_line(R"({"text": "x"})", 256).ok());
  const auto render =
      parse_render_line(R"({"messages": [{"role": "user", "content": null}], "kwargs": {"a": 1.0},
      "now": "2026-01-15"})");
  ASSERT_TRUE(render.ok());
  EXPECT_EQ(render.value().chat.messages_json, R"([{"role":"user","content":null}])");
  EXPECT_EQ(render.value().chat.kwargs_json, R"({"a":1.0})");
  EXPECT_EQ(render.value().now, "2026-01-15");
}

}  // namespace
}  // namespace rigel::server
