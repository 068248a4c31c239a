#pragma once

#include "server/http/exchange.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace rigel::server::http {

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;  // 0: one the system chooses
  std::size_t max_body_bytes = std::size_t{32} << 20;
  std::uint32_t max_header_bytes = 64u << 10;
  std::size_t max_unsent_bytes = std::size_t{4}
                                 << 20;  // of one stream; a client that lags further is given up
  std::chrono::milliseconds idle_timeout{120'000};  // of a connection without a request
  std::chrono::milliseconds stall_timeout{
      60'000};  // of a half-received request, or of a client that reads nothing
  int num_io_threads = 2;
  int num_handler_threads = 2;
};

/// What was said about a finished exchange, for the log. Status 499: the client went away.
struct ExchangeReport {
  const Request& request;
  int status = 0;
  std::chrono::microseconds duration{};
};

/// HTTP/1.1 over TCP: keep-alive, pipelining, chunked bodies, limits. Knows nothing of what is served.
///
/// `handler` runs on a handler thread and may block it; the answer may come later and from elsewhere. While an answer is
/// produced the socket is watched: a client that closes or resets its side is noticed at once.
class HttpServer {
 public:
  using Handler = std::function<void(std::shared_ptr<Exchange>)>;
  using Reporter = std::function<void(const ExchangeReport&)>;

  /// Binds and starts to accept. Throws std::runtime_error naming address and reason if it cannot.
  /// `reporter` runs on an I/O thread after each exchange; may be empty.
  HttpServer(HttpServerOptions options, Handler handler, Reporter reporter);

  /// stop().
  ~HttpServer();

  /// The bound port.
  [[nodiscard]] std::uint16_t port() const;

  /// Exchanges whose answers are not out yet.
  [[nodiscard]] std::int64_t num_active() const;

  /// From now on every connection is closed after its answer.
  void begin_drain();

  /// Closes all connections (their clients count as gone) and joins all threads. May be called once more.
  void stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rigel::server::http
