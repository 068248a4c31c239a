#include "server/commands/commands.h"
#include "server/http/http_server.h"
#include "server/log.h"
#include "server/model_session.h"
#include "server/router.h"

#include <fmt/core.h>
#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <future>
#include <memory>

namespace rigel::server {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPollPause{20};
constexpr std::chrono::seconds kFarewell{2};  // to tell clients that their time is over

/// SIGTERM and SIGINT as something to wait for. Blocks them in this thread and in those it starts later.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }

  /// Whether one came, waiting up to `timeout` for it.
  [[nodiscard]] bool wait(std::chrono::milliseconds timeout) const {
    const timespec limit{.tv_sec = timeout.count() / 1000,
                         .tv_nsec = (timeout.count() % 1000) * 1'000'000};
    return sigtimedwait(&set_, nullptr, &limit) > 0;
  }

 private:
  sigset_t set_{};
};

void report_exchange(const http::ExchangeReport& report) {
  log_info(fmt::format("{} {} {} {:.1f} ms", report.request.method, report.request.path,
                       report.status, static_cast<double>(report.duration.count()) / 1000.0));
}

/// Whether all answers are out before the deadline; leaves at once on a second signal.
bool await_answers(const http::HttpServer& server, const StopSignals& signals,
                   std::chrono::time_point<steady_clock, std::chrono::duration<double>> deadline) {
  while (server.num_active() > 0 && steady_clock::now() < deadline) {
    if (signals.wait(kPollPause)) {
      log_warning("second signal: leaving at once");
      std::_Exit(kFailed);
    }
  }
  return server.num_active() == 0;
}

/// Lets running requests end, up to the timeout, and cuts off those that don't.
void drain(const ServeOptions& options, const StopSignals& signals, Router& router,
           http::HttpServer& server, InferenceService& service) {
  log_info(fmt::format("shutting down: {} requests get up to {} s", service.num_unfinished(),
                       options.shutdown_timeout_s));
  router.begin_drain();
  server.begin_drain();
  service.begin_drain();
  const std::chrono::duration<double> timeout(options.shutdown_timeout_s);
  if (await_answers(server, signals, steady_clock::now() + timeout)) {
    return;
  }
  log_warning(fmt::format("{} requests did not end in time and are cut off", server.num_active()));
  router.cut_off();
  if (!await_answers(server, signals, steady_clock::now() + kFarewell)) {
    log_warning(
        fmt::format("{} clients did not take the end of their answers", server.num_active()));
  }
}

std::string shown_address(const std::string& host, std::uint16_t port) {
  const bool is_any = host == "0.0.0.0" || host == "::";
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return fmt::format("http://{}:{}",
                     is_any    ? "127.0.0.1"
                     : is_ipv6 ? "[" + host + "]"
                               : host,
                     port);
}

void announce(const ServedModel& model, const ServiceDescription& description,
              const std::string& address) {
  log_info(fmt::format("{}: device {}, {}, gemm {}, context {} tokens", model.name,
                       description.device, description.dtype, description.gemm,
                       model.service.limits().max_model_len));
  for (const auto& [part, num_bytes] : description.memory_bytes) {
    log_info(
        fmt::format("memory: {} {:.1f} MiB", part, static_cast<double>(num_bytes) / (1 << 20)));
  }
  for (const std::string& failure : description.capture_failures) {
    log_error(failure);
  }
  fmt::print("{} is served at {}\n", model.name, address);
  std::fflush(stdout);
}

}  // namespace

int run_serve(const ServeOptions& options) {
  const StopSignals signals;
  Router router(options.api_keys);
  // Declared before the server: connections must be gone before the service whose listeners write to them.
  std::unique_ptr<ModelSession> session;
  std::unique_ptr<ServedModel> model;
  // Listening first: an address in use is said at once, and callers are told 503 while the model loads.
  http::HttpServer server(
      {.host = options.host, .port = options.port},
      [&router](const auto& exchange) { router.handle(exchange); }, report_exchange);

  auto loading = std::async(std::launch::async, [&options] {
    return std::make_unique<ModelSession>(options.model, options.worker);
  });
  while (loading.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    if (signals.wait(kPollPause)) {
      log_info("stopped while loading");
      std::_Exit(kDone);  // nothing runs that would have to end
    }
  }
  session = loading.get();
  model.reset(new ServedModel{
      .name = options.served_model_name.empty() ? session->name() : options.served_model_name,
      .created = std::time(nullptr),
      .text = session->text(),
      .service = session->service()});
  router.set_model(*model);
  announce(*model, session->service().description(), shown_address(options.host, server.port()));

  while (!signals.wait(std::chrono::seconds(3600))) {
  }
  drain(options, signals, router, server, session->service());
  server.stop();
  log_info("done");
  return kDone;
}

}  // namespace rigel::server
