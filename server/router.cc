#include "server/router.h"

#include "server/api/answers.h"
#include "server/api/json_writer.h"
#include "server/api/prepare.h"
#include "server/api/running_call.h"
#include "server/api/text_calls.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/try_page.h"
#include "server/version.h"

#include <fmt/core.h>

#include <exception>
#include <random>

namespace rigel::server {
namespace {

/// Compares in a time that depends on the given text's length alone.
bool equal_in_constant_time(std::string_view given, std::string_view key) {
  std::size_t difference = given.size() ^ key.size();
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char expected = key.empty() ? '\0' : key[i % key.size()];
    difference |= static_cast<unsigned char>(given[i] ^ expected);
  }
  return difference == 0;
}

std::string random_hex() {
  std::random_device source;
  return fmt::format("{:08x}{:08x}", source(), source());
}

void respond_error(const std::shared_ptr<http::Exchange>& exchange, const ApiError& error) {
  exchange->respond(error_response(error));
}

}  // namespace

const Router::Route Router::kRoutes[] = {
    {"GET", "/", true, false, &Router::answer_page},
    {"GET", "/health", true, true, &Router::answer_health},
    {"GET", "/version", false, false, &Router::answer_version},
    {"GET", "/metrics", false, false, &Router::answer_metrics},
    {"GET", "/v1/models", false, false, &Router::answer_models},
    {"POST", "/v1/completions", false, true, &Router::answer_completions},
    {"POST", "/v1/chat/completions", false, true, &Router::answer_chat_completions},
    {"POST", "/tokenize", false, true, &Router::answer_tokenize},
    {"POST", "/detokenize", false, true, &Router::answer_detokenize},
};

Router::Router(std::vector<std::string> api_keys)
    : api_keys_(std::move(api_keys)), id_base_(random_hex()) {}

void Router::handle(const std::shared_ptr<http::Exchange>& exchange) {
  try {
    route(exchange);
  } catch (...) {
    const std::string id = next_request_id("req");
    std::string what = "unknown exception";
    try {
      throw;
    } catch (const std::exception& problem) {
      what = problem.what();
    } catch (...) {
    }
    log_error(fmt::format("{}: {} {}: {}", id, exchange->request().method, exchange->request().path,
                          what));
    respond_error(exchange,
                  {.status = 500, .message = fmt::format("Internal error (request {})", id)});
  }
}

void Router::route(ExchangeRef exchange) {
  const http::Request& request = exchange->request();
  const std::string_view method =
      request.method == "HEAD" ? "GET" : std::string_view(request.method);
  const Route* found = nullptr;
  std::string_view other_method;
  for (const Route& route : kRoutes) {
    if (route.path == request.path) {
      route.method == method ? void(found = &route) : void(other_method = route.method);
    }
  }
  if (!(found != nullptr && found->is_public) && !is_authorized(request.authorization)) {
    http::Response response = error_response(
        {.status = 401,
         .message =
             "Unauthorized: this server needs a key, as header 'Authorization: Bearer KEY'"});
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
    return exchange->respond(std::move(response));
  }
  if (found == nullptr && other_method.empty()) {
    return respond_error(
        exchange, {.status = 404, .message = fmt::format("There is no path {}", request.path)});
  }
  if (found == nullptr) {
    http::Response response =
        error_response({.status = 405,
                        .message = fmt::format("{} takes {}, got {}", request.path, other_method,
                                               request.method)});
    response.headers.emplace_back("Allow", std::string(other_method));
    return exchange->respond(std::move(response));
  }
  if (is_draining_ && found->is_for_callers) {
    return respond_error(exchange, {.status = 503, .message = "The server is shutting down"});
  }
  const bool needs_model =
      found->answer != &Router::answer_page && found->answer != &Router::answer_version;
  if (needs_model && model_.load() == nullptr) {
    return respond_error(exchange, {.status = 503, .message = "The model is loading"});
  }
  (this->*found->answer)(exchange);
}

bool Router::is_authorized(const std::string& authorization) const {
  if (api_keys_.empty()) {
    return true;
  }
  bool is_known =
      false;  // no early end: how long this takes must not tell which key was nearly right
  for (const std::string& key : api_keys_) {
    is_known |= equal_in_constant_time(authorization, "Bearer " + key);
  }
  return is_known;
}

bool Router::check_model(ExchangeRef exchange, const std::string& name) const {
  if (name.empty() || name == model().name) {
    return true;
  }
  respond_error(exchange,
                {.status = 404,
                 .message = fmt::format("The model `{}` does not exist; this server has `{}`", name,
                                        model().name),
                 .param = "model"});
  return false;
}

std::string Router::next_request_id(std::string_view prefix) {
  return fmt::format("{}-{}{:08x}", prefix, id_base_, num_ids_++);
}

void Router::generate(ExchangeRef exchange, CallKind kind, std::string_view id_prefix) {
  const http::Request& request = exchange->request();
  Parsed<GenerationCall> call = parse_generation_call(kind, request.body, model().service.limits());
  if (!call.ok()) {
    return respond_error(exchange, call.error());
  }
  if (!check_model(exchange, call.value().model)) {
    return;
  }
  unknown_fields_.note(request.path, call.value().unknown_fields);
  run_generation_call(model(), std::move(call.value()), exchange, next_request_id(id_prefix),
                      ongoing_);
}

void Router::answer_completions(ExchangeRef exchange) {
  generate(exchange, CallKind::kCompletion, "cmpl");
}

void Router::answer_chat_completions(ExchangeRef exchange) {
  generate(exchange, CallKind::kChat, "chatcmpl");
}

void Router::answer_page(ExchangeRef exchange) {
  exchange->respond({.content_type = "text/html; charset=utf-8", .body = std::string(kTryPage)});
}

void Router::answer_health(ExchangeRef exchange) {
  if (!model().service.healthy()) {
    return respond_error(exchange,
                         {.status = 503, .message = "The engine makes no progress any more"});
  }
  exchange->respond({.body = R"({"status":"ok"})"});
}

void Router::answer_version(ExchangeRef exchange) {
  JsonWriter json;
  json.begin_object().field("version", kVersion).end_object();
  exchange->respond({.body = json.take()});
}

void Router::answer_metrics(ExchangeRef exchange) {
  exchange->respond({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                     .body = prometheus_text(model().service.metrics(), model().name)});
}

void Router::answer_models(ExchangeRef exchange) {
  JsonWriter json;
  json.begin_object().field("object", "list").key("data").begin_array().begin_object();
  json.field("id", model().name).field("object", "model").field("created", model().created);
  json.field("owned_by", "rigel").field("root", model().name).field("parent", nullptr);
  json.field("max_model_len", model().service.limits().max_model_len)
      .end_object()
      .end_array()
      .end_object();
  exchange->respond({.body = json.take()});
}

void Router::answer_tokenize(ExchangeRef exchange) {
  Parsed<TokenizeCall> call = parse_tokenize_body(exchange->request().body);
  if (!call.ok()) {
    return respond_error(exchange, call.error());
  }
  if (!check_model(exchange, call.value().model)) {
    return;
  }
  unknown_fields_.note(exchange->request().path, call.value().unknown_fields);
  const Prompt& prompt = call.value().prompt;
  const Parsed<std::vector<std::int32_t>> ids =
      prompt_ids(prompt, call.value().add_special, model().text,
                 std::holds_alternative<ChatPrompt>(prompt) ? "messages" : "prompt");
  if (!ids.ok()) {
    return respond_error(exchange, ids.error());
  }
  JsonWriter json;
  json.begin_object().field("count", ids.value().size());
  json.field("max_model_len", model().service.limits().max_model_len).key("tokens").begin_array();
  for (const std::int32_t id : ids.value()) {
    json.value(id);
  }
  json.end_array().end_object();
  exchange->respond({.body = json.take()});
}

void Router::answer_detokenize(ExchangeRef exchange) {
  Parsed<DetokenizeCall> call =
      parse_detokenize_body(exchange->request().body, model().service.limits().vocab_size);
  if (!call.ok()) {
    return respond_error(exchange, call.error());
  }
  if (!check_model(exchange, call.value().model)) {
    return;
  }
  unknown_fields_.note(exchange->request().path, call.value().unknown_fields);
  if (!model().text.has_tokenizer()) {
    return respond_error(exchange, {.message = "tokens needs a tokenizer, and this model has none",
                                    .param = "tokens"});
  }
  JsonWriter json;
  json.begin_object()
      .field("prompt", decode(model().text, call.value().ids, /*skip_special=*/false))
      .end_object();
  exchange->respond({.body = json.take()});
}

}  // namespace rigel::server
