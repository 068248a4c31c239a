#pragma once

// Includes Beast: only for http_server.cc and connection.cc.

#include "server/http/http_server.h"
#include "server/http/live_exchange.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace rigel::server::http {

/// What all connections of a server share. Outlives them.
struct ConnectionContext {
  HttpServerOptions options;
  std::function<void(std::shared_ptr<Exchange>)> dispatch;  // to a handler thread; must not block
  HttpServer::Reporter report;
  std::atomic<std::int64_t> num_active{0};
  std::atomic<bool> is_draining{false};
};

/// One client. All its state lives on the strand of its socket.
///
/// One read is always under way, also while an answer is produced: that is how a client that goes away is noticed, and
/// where pipelined requests wait. The bytes go through a parser that is fed by hand.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, ConnectionContext& context);

  void start();

  /// Drops the client. Any thread.
  void close();

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  enum class State { kReading, kAnswering, kLingering, kClosed };

  void read();
  void on_read(const boost::system::error_code& problem, std::size_t num_bytes);
  void feed_parser();
  void accept_request();
  void refuse(int status, std::string message);
  void flush();
  void on_written(const boost::system::error_code& problem);
  void finish_exchange();
  void linger();
  void drop();
  void report(int status);
  void arm_timer(std::chrono::milliseconds timeout);

  boost::asio::ip::tcp::socket socket_;
  ConnectionContext& context_;
  boost::asio::steady_timer timer_;
  State state_ = State::kReading;
  std::array<char, 16384> arrived_;
  std::string input_;  // received, not parsed yet
  std::optional<Parser> parser_;
  bool continue_sent_ = false;
  std::shared_ptr<LiveExchange> exchange_;  // while answering
  std::string output_;                      // being sent
  bool is_writing_ = false;
  bool is_last_output_ = false;
  bool is_peer_done_ = false;  // it has closed its side while the end of its answer was being sent
};

}  // namespace rigel::server::http
