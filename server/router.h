#pragma once

#include "server/api/error.h"
#include "server/api/ongoing_calls.h"
#include "server/http/exchange.h"
#include "server/text_codec.h"
#include "server/unknown_field_log.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace rigel::server {

/// Maps paths to what they do. Answers while a model is still loading (503) and while the server drains (503).
/// Thread: any.
class Router {
 public:
  /// `api_keys`: any of them lets a caller in; empty: everybody is let in.
  explicit Router(std::vector<std::string> api_keys);

  /// Loading is over. Once; `model` must outlive the router's last exchange.
  void set_model(const ServedModel& model) { model_ = &model; }

  /// No new requests from now on.
  void begin_drain() { is_draining_ = true; }

  /// Ends every answer that is still under way: its time is over.
  void cut_off() { ongoing_.cut_off(); }

  /// Answers, now or later. Never throws: what goes wrong inside becomes a 500 with a request id.
  void handle(const std::shared_ptr<http::Exchange>& exchange);

 private:
  using ExchangeRef = const std::shared_ptr<http::Exchange>&;
  struct Route {
    std::string_view method;
    std::string_view path;
    bool is_public;       // needs no key
    bool is_for_callers;  // refused while loading or draining
    void (Router::*answer)(ExchangeRef);
  };
  static const Route kRoutes[];

  void route(ExchangeRef exchange);
  [[nodiscard]] bool is_authorized(const std::string& authorization) const;
  [[nodiscard]] const ServedModel& model() const { return *model_.load(); }
  [[nodiscard]] bool check_model(ExchangeRef exchange, const std::string& name) const;
  [[nodiscard]] std::string next_request_id(std::string_view prefix);
  void generate(ExchangeRef exchange, CallKind kind, std::string_view id_prefix);

  void answer_page(ExchangeRef exchange);
  void answer_health(ExchangeRef exchange);
  void answer_version(ExchangeRef exchange);
  void answer_metrics(ExchangeRef exchange);
  void answer_models(ExchangeRef exchange);
  void answer_completions(ExchangeRef exchange);
  void answer_chat_completions(ExchangeRef exchange);
  void answer_tokenize(ExchangeRef exchange);
  void answer_detokenize(ExchangeRef exchange);

  const std::vector<std::string> api_keys_;
  const std::string id_base_;  // random: ids of two server runs differ
  std::atomic<const ServedModel*> model_{nullptr};
  std::atomic<bool> is_draining_{false};
  std::atomic<std::uint64_t> num_ids_{0};
  UnknownFieldLog unknown_fields_;
  OngoingCalls ongoing_;
};

}  // namespace rigel::server
