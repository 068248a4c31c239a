#include "server/router.h"

#include "tests/server/serving.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace rigel::server {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

/// The chunks of a stream of server-sent events; checks their form and the [DONE] at the end.
std::vector<Json> chunks_of(const std::string& body) {
  std::vector<Json> chunks;
  bool is_done = false;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = body.find("\n\n", at);
    EXPECT_NE(end, std::string::npos);
    EXPECT_EQ(body.substr(at, 6), "data: ");
    const std::string data = body.substr(at + 6, end - at - 6);
    EXPECT_FALSE(is_done) << "something after [DONE]";
    data == "[DONE]" ? void(is_done = true) : chunks.push_back(Json::parse(data));
    at = end + 2;
  }
  EXPECT_TRUE(is_done);
  return chunks;
}

Json error_of(const RawResponse& response) {
  const Json error = Json::parse(response.body).at("error");
  EXPECT_TRUE(error.contains("message") && error.contains("type") && error.contains("param") &&
              error.contains("code"));
  EXPECT_EQ(error.at("code"), response.status);
  return error;
}

TEST(Router, AnswersACompletion) {
  Serving serving;
  serving.service.set_script({.num_cached_tokens = 2});
  const RawResponse response =
      serving.call("POST", "/v1/completions", R"({"model": "fake", "prompt": "Say hello"})");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("content-type"), "application/json");
  const Json body = Json::parse(response.body);
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["model"], "fake");
  EXPECT_THAT(body["id"].get<std::string>(), ::testing::StartsWith("cmpl-"));
  EXPECT_EQ(body["choices"][0]["text"], "Hello, world");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["choices"][0]["logprobs"], nullptr);
  EXPECT_EQ(body["usage"]["prompt_tokens"], 10);
  EXPECT_EQ(body["usage"]["completion_tokens"], 3);
  EXPECT_EQ(body["usage"]["total_tokens"], 13);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
}

TEST(Router, AnswersAChatThatMayFillTheContext) {
  Serving serving;
  const RawResponse response = serving.call("POST", "/v1/chat/completions",
                                            R"({"messages": [{"role": "user", "content": "hi"}]})");
  const Json body = Json::parse(response.body);
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["choices"][0]["message"],
            Json({{"role", "assistant"}, {"content", "Hello, world"}}));
  const GenerationRequest request = serving.service.submitted().at(0);
  EXPECT_EQ(request.prompt.front(), '[') << "a template brings its own BOS";
  EXPECT_EQ(request.sampling.max_tokens, 128 - static_cast<int>(request.prompt.size()));
}

TEST(Router, EndsAnswersAtTheContextsEnd) {
  Serving serving;
  EXPECT_EQ(
      serving.call("POST", "/v1/completions", R"({"prompt": "abc", "max_tokens": 1000000})").status,
      200);
  EXPECT_EQ(serving.service.submitted().at(0).sampling.max_tokens, 128 - 4);
}

TEST(Router, StreamsAChatInOpenAisForm) {
  Serving serving;
  serving.service.set_script({.pieces = {"a", "", "b"}, .pause = 2ms, .stop_string = "END"});
  const RawResponse response =
      serving.call("POST", "/v1/chat/completions",
                   R"({"messages": [{"role": "user", "content": "hi"}], "stream": true,
                                                "stream_options": {"include_usage": true}})");
  EXPECT_EQ(response.headers.at("content-type"), "text/event-stream; charset=utf-8");
  const std::vector<Json> chunks = chunks_of(response.body);
  ASSERT_EQ(chunks.size(), 4u) << "role, two texts (the empty delta says nothing), usage";
  EXPECT_EQ(chunks[0]["choices"][0]["delta"], Json({{"role", "assistant"}, {"content", ""}}));
  EXPECT_EQ(chunks[1]["choices"][0]["delta"], Json({{"content", "a"}}));
  EXPECT_EQ(chunks[2]["choices"][0]["delta"], Json({{"content", "b"}}));
  EXPECT_EQ(chunks[2]["choices"][0]["stop_reason"], "END");
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(chunks[i]["object"], "chat.completion.chunk");
    EXPECT_EQ(chunks[i]["id"], chunks[0]["id"]);
    EXPECT_EQ(chunks[i]["usage"], nullptr);
    EXPECT_EQ(chunks[i]["choices"][0]["index"], 0);
    const Json& reason = chunks[i]["choices"][0]["finish_reason"];
    EXPECT_EQ(reason, i < 2 ? Json() : Json("stop"));
  }
  EXPECT_EQ(chunks[3]["choices"], Json::array());
  EXPECT_EQ(chunks[3]["usage"]["completion_tokens"], 3);
}

TEST(Router, StreamsACompletionWithoutUsageUnlessAsked) {
  Serving serving;
  const std::vector<Json> chunks =
      chunks_of(serving.call("POST", "/v1/completions", R"({"prompt": "x", "stream": true})").body);
  std::string text;
  for (const Json& chunk : chunks) {
    EXPECT_FALSE(chunk.contains("usage"));
    text += chunk["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(text, "Hello, world");
  EXPECT_EQ(chunks.back()["choices"][0]["finish_reason"], "stop");
}

TEST(Router, AnswersEveryPromptNTimes) {
  Serving serving;
  for (const bool stream : {false, true}) {
    const std::string body = R"({"prompt": ["a", "bc"], "n": 2, "seed": 5, "stream": )" +
                             std::string(stream ? "true}" : "false}");
    const RawResponse response = serving.call("POST", "/v1/completions", body);
    std::map<int, std::string> texts;
    for (const Json& answer :
         stream ? chunks_of(response.body) : std::vector<Json>{Json::parse(response.body)}) {
      for (const Json& choice : answer["choices"]) {
        texts[choice["index"]] += choice["text"].get<std::string>();
      }
    }
    EXPECT_THAT(texts, ::testing::ElementsAre(
                           ::testing::Pair(0, "Hello, world"), ::testing::Pair(1, "Hello, world"),
                           ::testing::Pair(2, "Hello, world"), ::testing::Pair(3, "Hello, world")));
    if (!stream) {
      EXPECT_EQ(Json::parse(response.body)["usage"]["prompt_tokens"], 2 + 3)
          << "a prompt counts once";
    }
  }
  const std::vector<GenerationRequest> submitted = serving.service.submitted();
  EXPECT_EQ(submitted.at(0).sampling.seed, 5u);
  EXPECT_EQ(submitted.at(1).sampling.seed, 6u) << "choices of one prompt must differ";
  EXPECT_EQ(submitted.at(2).prompt.size(), 3u);
}

TEST(Router, EchoesThePrompt) {
  Serving serving;
  const std::string fields = R"({"prompt": "Q: ", "echo": true)";
  EXPECT_EQ(
      Json::parse(serving.call("POST", "/v1/completions", fields + "}").body)["choices"][0]["text"],
      "Q: Hello, world");
  const auto chunks =
      chunks_of(serving.call("POST", "/v1/completions", fields + R"(, "stream": true})").body);
  EXPECT_EQ(chunks.at(0)["choices"][0]["text"], "Q: ");
  const Json scored =
      Json::parse(serving.call("POST", "/v1/completions", fields + R"(, "logprobs": 0})").body);
  EXPECT_EQ(scored["choices"][0]["logprobs"]["text_offset"], Json({0, 0, 1, 2, 3, 4, 5}));
}

TEST(Router, EchoesThePromptWithItsLogprobs) {
  Serving serving;
  serving.service.set_script({.pieces = {"x"}});
  const auto ask = [&](const std::string& prompt) {
    const std::string fields = R"({"n": 2, "echo": true, "logprobs": 1, "prompt": )";
    return Json::parse(serving.call("POST", "/v1/completions", fields + prompt + "}").body);
  };
  const Json body = ask(R"("ab")");
  for (const int index : {0, 1}) {  // the text does not show token 1
    const Json& choice = body["choices"][index];
    EXPECT_EQ(choice["text"], "abx");
    EXPECT_EQ(choice["logprobs"]["tokens"], Json({"\u0001", "a", "b", "x"}));
    EXPECT_EQ(choice["logprobs"]["token_logprobs"], Json({nullptr, -1.0, -2.0, -0.5}));
    EXPECT_EQ(choice["logprobs"]["top_logprobs"][0], nullptr);
    EXPECT_EQ(choice["logprobs"]["top_logprobs"][2], Json({{"b", -2.0}, {"A", -2.0}}));
    EXPECT_EQ(choice["logprobs"]["text_offset"], Json({0, 0, 1, 2}));
  }
  const Json of_ids = ask("[[98], [99]]")["choices"][3];
  EXPECT_EQ(of_ids["text"], "cx");
  EXPECT_EQ(of_ids["logprobs"]["tokens"], Json({"c", "x"}));
  EXPECT_EQ(of_ids["logprobs"]["text_offset"], Json({0, 1}));
  EXPECT_TRUE(serving.service.submitted().at(0).prompt_top.has_value());
  EXPECT_FALSE(serving.service.submitted().at(1).prompt_top.has_value()) << "scored once a prompt";
}

TEST(Router, RefusesWhatNeedsATokenizerWhereThereIsNone) {
  Serving serving;
  serving.codec.with_tokenizer = false;
  for (const auto& [field, value] : {std::pair("echo", "true"), std::pair("stop", R"("x")")}) {
    const RawResponse refused =
        serving.call("POST", "/v1/completions",
                     R"({"prompt": [97], ")" + std::string(field) + "\": " + value + "}");
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(error_of(refused)["param"], field);
    EXPECT_THAT(error_of(refused)["message"].get<std::string>(), HasSubstr("tokenizer"));
  }
  const RawResponse refused = serving.call("POST", "/detokenize", R"({"tokens": [97]})");
  EXPECT_EQ(error_of(refused)["param"], "tokens");
  const Json lists =
      Json::parse(serving.call("POST", "/v1/completions", R"({"prompt": [97], "logprobs": 1})")
                      .body)["choices"][0]["logprobs"];
  EXPECT_EQ(lists["tokens"][0], "token_id:72");
  EXPECT_EQ(lists["top_logprobs"][0].size(), 2u) << "names must differ";
}

TEST(Router, SaysWhichStopEndedAnAnswer) {
  Serving serving;
  const auto stop_reason = [&](const std::string& fields) {
    const std::string body = R"({"prompt": "x", )" + fields;
    const Json whole = Json::parse(serving.call("POST", "/v1/completions", body + "}").body);
    const std::vector<Json> chunks =
        chunks_of(serving.call("POST", "/v1/completions", body + R"(, "stream": true})").body);
    EXPECT_EQ(chunks.back()["choices"][0]["stop_reason"], whole["choices"][0]["stop_reason"]);
    return whole["choices"][0]["stop_reason"];
  };
  serving.service.set_script({.pieces = {"a", "b"}});
  EXPECT_EQ(stop_reason(R"("stop_token_ids": [1, 98])"), 98);
  EXPECT_EQ(stop_reason(R"("stop_token_ids": [97])"), nullptr) << "the end token, not that one";
  serving.service.set_script({.pieces = {"a", "b"}, .stop_string = "ab"});
  EXPECT_EQ(stop_reason(R"("stop_token_ids": [98], "stop": "ab")"), "ab");
  serving.service.set_script({.pieces = {"a", "b"}, .finish = FinishReason::kLength});
  EXPECT_EQ(stop_reason(R"("stop_token_ids": [98])"), nullptr);
}

TEST(Router, ReportsLogprobsInBothForms) {
  Serving serving;
  serving.service.set_script({.pieces = {"x", "\xC3\xA9"}});
  const Json completion = Json::parse(
      serving.call("POST", "/v1/completions", R"({"prompt": "q", "logprobs": 2})").body);
  const Json& lists = completion["choices"][0]["logprobs"];
  EXPECT_EQ(lists["tokens"], Json({"x", "bytes:\\xc3"}));
  EXPECT_EQ(lists["token_logprobs"], Json({-0.5, -0.5}));
  EXPECT_EQ(lists["top_logprobs"][0], Json({{"x", -0.5}, {"b", -1.0}, {"c", -1.5}}));
  EXPECT_EQ(lists["text_offset"], Json({0, 1}));

  const Json chat = Json::parse(
      serving
          .call(
              "POST", "/v1/chat/completions",
              R"({"messages": [{"role": "user", "content": "q"}], "logprobs": true, "top_logprobs": 1})")
          .body);
  const Json& first = chat["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(first["token"], "x");
  EXPECT_EQ(first["logprob"], -0.5);
  EXPECT_EQ(first["bytes"], Json({120}));
  EXPECT_EQ(first["top_logprobs"][0]["token"], "b");
}

TEST(Router, SaysWhatFailed) {
  Serving serving;
  serving.service.set_script(
      {.pieces = {"half"}, .finish = FinishReason::kError, .error = "logits are not finite"});
  const RawResponse whole = serving.call("POST", "/v1/completions", R"({"prompt": "x"})");
  EXPECT_EQ(whole.status, 500);
  EXPECT_THAT(error_of(whole)["message"].get<std::string>(),
              ::testing::AllOf(HasSubstr("logits are not finite"), HasSubstr("cmpl-")));
  const auto chunks =
      chunks_of(serving.call("POST", "/v1/completions", R"({"prompt": "x", "stream": true})").body);
  EXPECT_THAT(chunks.back().at("error").at("message").get<std::string>(),
              HasSubstr("logits are not finite"));
  serving.service.set_script({});
  EXPECT_EQ(serving.call("POST", "/v1/completions", R"({"prompt": "x"})").status, 200)
      << "the server lives on";
}

TEST(Router, HasAStatusForEveryRefusal) {
  Serving serving;
  EXPECT_EQ(serving.call("GET", "/nowhere").status, 404);
  const RawResponse wrong_method = serving.call("GET", "/v1/completions");
  EXPECT_EQ(wrong_method.status, 405);
  EXPECT_EQ(wrong_method.headers.at("allow"), "POST");
  EXPECT_EQ(serving.call("POST", "/health").status, 405);
  const RawResponse no_model =
      serving.call("POST", "/v1/completions", R"({"model": "other", "prompt": "x"})");
  EXPECT_EQ(no_model.status, 404);
  EXPECT_EQ(error_of(no_model)["param"], "model");
  const RawResponse bad =
      serving.call("POST", "/v1/completions", R"({"prompt": "x", "temperature": 9})");
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(error_of(bad)["param"], "temperature");
  EXPECT_EQ(error_of(bad)["type"], "BadRequestError");
  EXPECT_EQ(serving.call("POST", "/v1/completions", "{not json").status, 400);
  const std::string too_long(200, 'x');
  const RawResponse long_prompt =
      serving.call("POST", "/v1/completions", R"({"prompt": ")" + too_long + "\"}");
  EXPECT_EQ(long_prompt.status, 400);
  EXPECT_THAT(error_of(long_prompt)["message"].get<std::string>(),
              ::testing::AllOf(HasSubstr("201"), HasSubstr("128")));
  serving.service.refuse_with(
      RequestError{RequestError::Kind::kOverloaded, "8 requests are waiting", ""});
  for (const char* stream : {"false", "true"}) {
    const RawResponse full = serving.call(
        "POST", "/v1/completions", R"({"prompt": "x", "stream": )" + std::string(stream) + "}");
    EXPECT_EQ(full.status, 503);
    EXPECT_EQ(full.headers.at("retry-after"), "1");
  }
  serving.service.refuse_with(
      RequestError{RequestError::Kind::kInvalid, "prompt can never fit", "prompt"});
  EXPECT_EQ(serving.call("POST", "/v1/completions", R"({"prompt": "x"})").status, 400);
}

TEST(Router, LetsCallersInByKey) {
  Serving serving({"secret", "other"});
  const auto status = [&](const char* path, const std::string& authorization) {
    return serving
        .call("GET", path, "",
              authorization.empty() ? "" : "Authorization: " + authorization + "\r\n")
        .status;
  };
  EXPECT_EQ(status("/health", ""), 200);
  for (const char* path : {"/v1/models", "/metrics", "/version", "/nowhere"}) {
    EXPECT_EQ(status(path, ""), 401) << path;
  }
  EXPECT_EQ(status("/v1/models", "Bearer secret"), 200);
  EXPECT_EQ(status("/v1/models", "Bearer other"), 200);
  for (const char* wrong :
       {"Bearer secre", "Bearer secrets", "Bearer ", "secret", "Basic secret", "Bearer Secret"}) {
    EXPECT_EQ(status("/v1/models", wrong), 401) << wrong;
  }
}

TEST(Router, Says503WhileLoadingAndDraining) {
  Router router({});
  http::HttpServer server({.port = 0}, [&](const auto& exchange) { router.handle(exchange); }, {});
  const auto status = [&](const char* method, const char* path) {
    return RawClient(server.port()).call(method, path, R"({"prompt": "x"})").status;
  };
  EXPECT_EQ(status("POST", "/v1/completions"), 503);
  EXPECT_EQ(status("GET", "/health"), 503);
  EXPECT_EQ(status("GET", "/v1/models"), 503);
  EXPECT_EQ(status("GET", "/version"), 200);

  Serving serving;
  serving.router.begin_drain();
  EXPECT_EQ(serving.call("POST", "/v1/completions", R"({"prompt": "x"})").status, 503);
  EXPECT_EQ(serving.call("GET", "/health").status, 503);
  EXPECT_EQ(serving.call("GET", "/metrics").status, 200);
}

TEST(Router, LetsRunningRequestsEndWhileDraining) {
  Serving serving;
  serving.service.set_script({.pieces = {"a", "b", "c"}, .pause = 50ms});
  RawClient client(serving.server.port());
  client.send(spell_request("POST", "/v1/completions", R"({"prompt": "x"})"));
  ASSERT_TRUE(serving.service.wait_for_submitted(1, 5s));
  serving.router.begin_drain();
  serving.server.begin_drain();
  EXPECT_EQ(Json::parse(client.read_response().body)["choices"][0]["text"], "abc");
  EXPECT_TRUE(client.is_closed_by_server());
}

TEST(Router, TellsTheClientsOfAnswersThatAreCutOff) {
  Serving serving;
  RawClient stream(serving.server.port());
  serving.service.set_script({.pieces = {"on and on"}, .pause = 1ms, .never_ends = true});
  stream.send(spell_request("POST", "/v1/completions", R"({"prompt": "x", "stream": true})"));
  ASSERT_TRUE(stream.read_until("on and on"));
  serving.service.set_script({.pieces = {"x"}, .pause = 1h});
  RawClient waiting(serving.server.port());
  waiting.send(spell_request("POST", "/v1/completions", R"({"prompt": "x", "n": 2})"));
  ASSERT_TRUE(serving.service.wait_for_submitted(3, 5s));
  serving.router.begin_drain();
  serving.router.cut_off();

  const std::vector<Json> chunks = chunks_of(stream.read_response().body);
  EXPECT_EQ(chunks.back()["error"]["code"], 503);
  EXPECT_THAT(chunks.back()["error"]["message"].get<std::string>(), HasSubstr("shutting down"));
  // The second of these may be cut off before its last submission is noted; both ways it says 503.
  const RawResponse response = waiting.read_response();
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.headers.at("retry-after"), "1");
  EXPECT_THAT(error_of(response)["message"].get<std::string>(), HasSubstr("shutting down"));
  EXPECT_TRUE(serving.service.wait_for_cancelled(3, 5s));
  serving.router.cut_off();  // nobody is left
}

TEST(B_107, HealthTellsWhenTheEngineIsDead) {
  Serving serving;
  EXPECT_EQ(serving.call("GET", "/health").status, 200);
  serving.service.set_healthy(false);
  EXPECT_EQ(serving.call("GET", "/health").status, 503);
}

TEST(Router, CancelsWithinAHundredMillisecondsWhenTheClientGoesAway) {
  for (const char* stream : {"false", "true"}) {
    for (const bool by_reset : {false, true}) {
      Serving serving;
      serving.service.set_script({.pieces = {"x"}, .pause = 5ms, .never_ends = true});
      RawClient client(serving.server.port());
      client.send(
          spell_request("POST", "/v1/completions",
                        R"({"prompt": "x", "n": 3, "stream": )" + std::string(stream) + "}"));
      ASSERT_TRUE(serving.service.wait_for_submitted(3, 5s));
      by_reset ? client.reset() : client.close();
      EXPECT_TRUE(serving.service.wait_for_cancelled(3, 100ms)) << stream << by_reset;
    }
  }
}

TEST(Router, CancelsARequestThatStillWaitsForItsFirstToken) {
  Serving serving;
  serving.service.set_script({.pieces = {"x"}, .pause = 1h});
  RawClient client(serving.server.port());
  client.send(spell_request("POST", "/v1/chat/completions",
                            R"({"messages": [{"role": "user", "content": "x"}]})"));
  ASSERT_TRUE(serving.service.wait_for_submitted(1, 5s));
  client.close();
  EXPECT_TRUE(serving.service.wait_for_cancelled(1, 100ms));
}

TEST(Router, CancelsForAClientThatDoesNotReadAndServesTheOthers) {
  Serving serving({}, {.max_unsent_bytes = 1 << 20});
  serving.service.set_script({.pieces = {std::string(60'000, 'x')}, .never_ends = true});
  RawClient lazy(serving.server.port(), /*receive_buffer_bytes=*/4096);
  lazy.send(spell_request("POST", "/v1/completions", R"({"prompt": "x", "stream": true})"));
  ASSERT_TRUE(serving.service.wait_for_submitted(1, 5s));
  EXPECT_TRUE(serving.service.wait_for_cancelled(1, 5s));
  serving.service.set_script({});
  EXPECT_EQ(serving.call("POST", "/v1/completions", R"({"prompt": "x"})").status, 200);
}

TEST(Router, AnswersTwoPipelinedCompletionsInOrder) {
  Serving serving;
  RawClient client(serving.server.port());
  client.send(spell_request("POST", "/v1/completions", R"({"prompt": "x"})") +
              spell_request("POST", "/v1/completions", R"({"prompt": "x", "stream": true})"));
  EXPECT_EQ(Json::parse(client.read_response().body)["choices"][0]["text"], "Hello, world");
  EXPECT_THAT(client.read_response().body, HasSubstr("[DONE]"));
}

TEST(Router, TellsAboutItself) {
  Serving serving;
  const Json models = Json::parse(serving.call("GET", "/v1/models").body);
  EXPECT_EQ(models["object"], "list");
  EXPECT_EQ(models["data"][0]["id"], "fake");
  EXPECT_EQ(models["data"][0]["object"], "model");
  EXPECT_EQ(models["data"][0]["max_model_len"], 128);
  EXPECT_TRUE(Json::parse(serving.call("GET", "/version").body)["version"].is_string());
  const RawResponse page = serving.call("GET", "/");
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_THAT(page.body, ::testing::Not(HasSubstr("http://")))
      << "the page must need nothing from outside";
  EXPECT_THAT(page.body, ::testing::Not(HasSubstr("https://")));
}

TEST(Router, TurnsTextIntoIdsAndBack) {
  Serving serving;
  const Json ids = Json::parse(serving.call("POST", "/tokenize", R"({"prompt": "ab"})").body);
  EXPECT_EQ(ids["tokens"], Json({1, 97, 98}));
  EXPECT_EQ(ids["count"], 3);
  EXPECT_EQ(ids["max_model_len"], 128);
  EXPECT_EQ(Json::parse(
                serving.call("POST", "/tokenize", R"({"prompt": "a", "add_special_tokens": false})")
                    .body)["tokens"],
            Json({97}));
  EXPECT_EQ(
      Json::parse(serving.call("POST", "/detokenize", R"({"tokens": [97, 98]})").body)["prompt"],
      "ab");
  EXPECT_EQ(serving.call("POST", "/detokenize", R"({"tokens": [256]})").status, 400);
}

TEST(Router, ShowsMetricsUnderVllmsNames) {
  Serving serving;
  const std::string text = serving.call("GET", "/metrics").body;
  const std::string labels = R"({engine="0",model_name="fake")";
  EXPECT_THAT(text, HasSubstr("vllm:num_requests_running" + labels + "} 0\n"));
  EXPECT_THAT(text, HasSubstr("vllm:prompt_tokens_total" + labels + "} 7\n"));
  EXPECT_THAT(text,
              HasSubstr("vllm:request_success_total" + labels + R"(,finished_reason="length"} 2)"));
  EXPECT_THAT(text, HasSubstr("# TYPE vllm:time_to_first_token_seconds histogram\n"));
  EXPECT_THAT(text,
              HasSubstr("vllm:time_to_first_token_seconds_bucket" + labels + R"(,le="0.001"} 2)"));
  EXPECT_THAT(text,
              HasSubstr("vllm:time_to_first_token_seconds_bucket" + labels + R"(,le="0.5"} 3)"));
  EXPECT_THAT(text,
              HasSubstr("vllm:time_to_first_token_seconds_bucket" + labels + R"(,le="+Inf"} 4)"));
  EXPECT_THAT(text, HasSubstr("vllm:time_to_first_token_seconds_sum" + labels + "} 1.25\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE rigel:host_step_seconds histogram\n"));
  EXPECT_EQ(text.find("# TYPE rigel:host_step_seconds"),
            text.rfind("# TYPE rigel:host_step_seconds"))
      << "a family is declared once, whatever labels it has";
  EXPECT_THAT(text, HasSubstr("rigel:host_step_seconds_bucket" + labels +
                              R"(,phase="build",le="1e-05"} 2)"));
  EXPECT_THAT(text, HasSubstr("rigel:host_step_seconds_count" + labels + R"(,phase="total"} 3)"));
  EXPECT_THAT(text, HasSubstr("rigel:gpu_idle_between_steps_seconds_sum" + labels + "} 0.25\n"));
  EXPECT_THAT(text,
              HasSubstr("rigel:wasted_row_steps_total" + labels + R"(,reason="stop_token"} 4)"));
  EXPECT_THAT(text,
              HasSubstr("rigel:wasted_row_steps_total" + labels + R"(,reason="stop_string"} 5)"));
  EXPECT_THAT(text, HasSubstr("rigel:wasted_row_steps_total" + labels + R"(,reason="length"} 0)"));
  EXPECT_THAT(text,
              HasSubstr("rigel:speculative_rows_total" + labels + R"(,kind="continuing"} 0)"));
  EXPECT_THAT(text, HasSubstr("rigel:memory_bytes" + labels + R"(,part="kv_cache"} 2000)"));
}

}  // namespace
}  // namespace rigel::server
