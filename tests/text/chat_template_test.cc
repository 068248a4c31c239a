#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rigel::text {
namespace {

using ::testing::HasSubstr;

/// Renders `source` with the variables of a JSON object.
std::string render(const std::string& source, const std::string& variables = "{}") {
  ChatInput input;
  input.extra = parse_json(variables);
  return ChatTemplate(source).render(input);
}

std::string template_error(const std::string& source, const std::string& variables = "{}") {
  try {
    return "no error: " + render(source, variables);
  } catch (const TemplateError& error) {
    return error.what();
  }
}

TEST(ChatTemplate, TrimsAroundBlocksAsTransformersDoes) {
  EXPECT_EQ(render("a\n  {% if true %}\n b\n  {% endif %}\nc\n"), "a\n b\nc");
  EXPECT_EQ(render("a  {{- 1 -}}  b"), "a1b");
  EXPECT_EQ(render("a {#- c -#} b"), "ab");
  EXPECT_EQ(render("  {%+ if true %}x{% endif %}"), "  x");
  EXPECT_EQ(render("x {# c #}\ny\r\nz\n\n"), "x y\nz\n");
}

TEST(ChatTemplate, PrintsValuesAsPythonDoes) {
  EXPECT_EQ(render("{{ [true, none, 1.0, 1e22, 1e-7, 'it\\'s', {'a': (1,)}] }}"),
            "[True, None, 1.0, 1e+22, 1e-07, \"it's\", {'a': (1,)}]");
  EXPECT_EQ(render("{{ x }}|{{ y }}", R"({"x": 12345678901234567890, "y": 1.5})"),
            "12345678901234567890|1.5");
  EXPECT_EQ(render("{{ x | tojson }}", R"({"x": {"b": "<é\u0007\u007f>", "a": [1, {}, []]}})"),
            "{\"b\": \"<é\\u0007\x7f>\", \"a\": [1, {}, []]}");
  EXPECT_EQ(render("{{ {'a': [1], 'b': []} | tojson(indent=2) }}"),
            "{\n  \"a\": [\n    1\n  ],\n  \"b\": []\n}");
}

TEST(ChatTemplate, FollowsPythonsOperators) {
  EXPECT_EQ(render("{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 1 < 2 < 3 }} {{ 'b' in "
                   "'abc' }}"),
            "-4 2 3.5 1024 True True");
  EXPECT_EQ(render("{{ 'héllo'[1] }}{{ 'héllo'[::-1] }}{{ [1, 2, 3][-2:] }}"), "éolléh[2, 3]");
  EXPECT_EQ(
      render("{{ 1 == 1.0 }} {{ true == 1 }} {{ [1, {'a': 2}] == [1, {'a': 2}] }} {{ 1 ~ none }}"),
      "True True True 1None");
}

TEST(ChatTemplate, ScopesVariablesAsJinjaDoes) {
  EXPECT_EQ(render("{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{% endfor %}{{ x }}"), "1");
  EXPECT_EQ(render("{% if true %}{% set x = 2 %}{% endif %}{{ x }}"), "2");
  EXPECT_EQ(
      render(
          "{% set n = namespace(x=1) %}{% for i in [1] %}{% set n.x = 2 %}{% endfor %}{{ n.x }}"),
      "2");
  EXPECT_EQ(
      render("{% macro m(a, b=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{% set c = 3 %}{{ m(1) }}"),
      "113");
}

TEST(ChatTemplate, LoopsWithFiltersBreaksAndElse) {
  EXPECT_EQ(render("{% for i in range(9) if i % 2 %}{{ loop.index }}:{{ i }}{% if not loop.last "
                   "%},{% endif %}"
                   "{% if i == 5 %}{% break %}{% endif %}{% endfor %}"),
            "1:1,2:3,3:5,");
  EXPECT_EQ(render("{% for i in [] %}x{% else %}none{% endfor %}"), "none");
  EXPECT_EQ(render("{% for a, b in {'k': 1}.items() %}{{ a }}={{ b }}{% endfor %}"), "k=1");
  EXPECT_EQ(
      render("{% for i in [1,2] %}{{ loop.previtem }}{{ loop.nextitem is defined }};{% endfor %}"),
      "True;1False;");
}

TEST(ChatTemplate, TakesUndefinedValuesAsJinjaDoes) {
  EXPECT_EQ(
      render("[{{ x }}]{{ x is defined }}{% for i in x %}y{% endfor %}{{ x | default('d') }}"),
      "[]Falsed");
  EXPECT_THAT(template_error("{{ x.y }}"), HasSubstr("'x' is undefined"));
  EXPECT_THAT(template_error("a\n{{ 'a' + x }}"), HasSubstr("line 2: 'x' is undefined"));
  EXPECT_THAT(template_error("{{ {}.a.b }}"), HasSubstr("'dict object' has no attribute 'a'"));
}

TEST(ChatTemplate, RefusesWhatItDoesNotKnowWhenParsed) {
  const auto parse_error = [](const std::string& source) -> std::string {
    try {
      const ChatTemplate chat_template(source);
    } catch (const TemplateError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(parse_error("\n{% if false %}{{ x | frobnicate }}{% endif %}"),
              HasSubstr("line 2: unknown filter 'frobnicate'"));
  EXPECT_THAT(parse_error("{{ x is odder }}"), HasSubstr("unknown test 'odder'"));
  EXPECT_THAT(parse_error("{{ x.frob() }}"), HasSubstr("unknown method 'frob'"));
  EXPECT_THAT(parse_error("{% include 'x' %}"), HasSubstr("unknown tag 'include'"));
  EXPECT_THAT(parse_error("{{ x | map('frob') | list }}"), HasSubstr("unknown filter 'frob'"));
  EXPECT_THAT(parse_error("{% for x in y recursive %}{% endfor %}"), HasSubstr("recursive"));
  for (const char* broken :
       {"{% if x %}", "{{ x", "{{ 'x }}", "{% endif %}", "{{ (1 }}", "{{ }}", "{# x", "{{ 1 ? }}",
        "{% break %}", "{% set x %}", "{% for x %}", "{{ a[ }}", "{{ f(a=1, 2) }}"}) {
    EXPECT_NE(parse_error(broken), "no error") << broken;
  }
}

TEST(ChatTemplate, ReportsTheTemplatesOwnErrorsWordForWord) {
  try {
    render("{{ raise_exception('Only ' ~ 1 ~ ' tool!') }}");
    FAIL();
  } catch (const TemplateError& error) {
    EXPECT_TRUE(error.is_raised_by_template());
    EXPECT_STREQ(error.what(), "Only 1 tool!");
  }
}

TEST(ChatTemplate, StopsEndlessRecursionAndDeepNesting) {
  EXPECT_THAT(template_error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
              HasSubstr("recursion"));
  EXPECT_THAT(template_error("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"),
              HasSubstr("too deep"));
  EXPECT_THAT(template_error("{{ " + std::string(5000, '-') + "1 }}"), HasSubstr("too deep"));
  std::string sum = "1";
  for (int i = 0; i < 15000; ++i) {
    sum += "+1";
  }
  EXPECT_THAT(template_error("{{ " + sum + " }}"), HasSubstr("too long"));
  EXPECT_THAT(template_error("{{ " + sum.substr(0, 3999) + " }}"), HasSubstr("recursion"));
  std::string blocks;
  for (int i = 0; i < 5000; ++i) {
    blocks += "{% if x %}";
  }
  EXPECT_THAT(template_error(blocks), HasSubstr("too deep"));
  EXPECT_THAT(
      template_error("{% set n = namespace(x=[]) %}{% for i in range(9999) %}{% set n.x = [n.x] "
                     "%}{% endfor %}"),
      HasSubstr("nests deeper"));
  EXPECT_THROW(parse_json(std::string(100000, '[')), TextError);
}

TEST(ChatTemplate, FreesNamespacesAndMacrosThatHoldThemselves) {
  EXPECT_EQ(render("{% set n = namespace() %}{% set n.me = n %}{% macro m() %}{% endmacro %}{% set "
                   "n.m = m %}x"),
            "x");
  EXPECT_EQ(render("{% set h = namespace(v=none) %}{% for i in range(50000) %}{% set h.v = "
                   "namespace(x=h.v) %}"
                   "{% endfor %}x"),
            "x");
}

TEST(ChatTemplate, FreesLongChainsOfLoopsAndMethods) {
  EXPECT_EQ(render("{% set n = namespace(l=none) %}{% for i in range(50000) %}{% for k in [n.l] "
                   "%}{% set n.l = loop %}"
                   "{% endfor %}{% endfor %}x"),
            "x");
  EXPECT_EQ(
      render(
          "{% set n = namespace(f=none) %}{% for i in range(50000) %}{% set n.f = {'f': n.f}.get %}"
          "{% endfor %}x"),
      "x");
}

TEST(ChatTemplate, NeverChangesWhatItWasGiven) {
  EXPECT_THAT(template_error("{{ x.append(1) }}", R"({"x": []})"), HasSubstr("unsafe"));
  EXPECT_THAT(template_error("{{ x.pop('a') }}", R"({"x": {"a": 1}})"), HasSubstr("unsafe"));
}

TEST(ChatTemplate, PreparesMessagesAsTransformersDoes) {
  const Value messages = parse_json(
      R"([{"role": "assistant", "content": null, "reasoning": "r"}, {"role": "user", "content": "c"}])");
  EXPECT_EQ(
      to_json(prepare_messages(messages)),
      R"([{"thinking": "r", "role": "assistant", "reasoning": "r", "reasoning_content": "r"}, )"
      R"({"role": "user", "content": "c"}])");
}

TEST(ParseJson, RefusesWhatIsNoJson) {
  for (const char* text : {"", "{", "[1,]", "{\"a\": }", "nul", "\"\xFF\"", "[1] 2"}) {
    EXPECT_THROW(parse_json(text), TextError) << text;
  }
}

}  // namespace
}  // namespace rigel::text
