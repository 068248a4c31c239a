#include "server/http/http_server.h"

#include "server/http/connection.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <fmt/core.h>

#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

namespace rigel::server::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::milliseconds kAcceptPause{100};

tcp::endpoint resolve(asio::io_context& io, const HttpServerOptions& options) {
  tcp::resolver resolver(io);
  error_code problem;
  const auto results =
      resolver.resolve(options.host, std::to_string(options.port),
                       tcp::resolver::passive | tcp::resolver::numeric_service, problem);
  if (problem || results.empty()) {
    throw std::runtime_error(fmt::format("--host {}: {}", options.host, problem.message()));
  }
  return results.begin()->endpoint();
}

tcp::acceptor listen(asio::io_context& io, const HttpServerOptions& options) {
  const tcp::endpoint endpoint = resolve(io, options);
  try {
    return tcp::acceptor(asio::make_strand(io), endpoint, /*reuse_addr=*/true);
  } catch (const boost::system::system_error& problem) {
    throw std::runtime_error(fmt::format("cannot listen on {}:{}: {}", options.host, options.port,
                                         problem.code().message()));
  }
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(HttpServerOptions options, Handler handler, Reporter reporter)
      : acceptor_(listen(io_, options)),
        accept_timer_(acceptor_.get_executor()),
        handlers_(static_cast<std::size_t>(options.num_handler_threads)),
        handler_(std::move(handler)) {
    context_.options = std::move(options);
    context_.report = std::move(reporter);
    context_.dispatch = [this](std::shared_ptr<Exchange> exchange) {
      asio::post(handlers_, [this, exchange = std::move(exchange)] { handler_(exchange); });
    };
    port_ = acceptor_.local_endpoint().port();
    asio::post(acceptor_.get_executor(), [this] { accept(); });
    for (int i = 0; i < context_.options.num_io_threads; ++i) {
      io_threads_.emplace_back([this] { io_.run(); });
    }
  }

  ~Impl() { stop(); }

  void stop() {
    asio::post(acceptor_.get_executor(), [this] {
      is_stopped_ = true;
      error_code ignored;
      acceptor_.close(ignored);
      accept_timer_.cancel();
      for (const auto& weak : connections_) {
        if (const auto connection = weak.lock()) {
          connection->close();
        }
      }
      connections_.clear();
    });
    for (std::thread& thread : io_threads_) {
      thread.join();  // io_ runs dry once the last connection is closed
    }
    io_threads_.clear();
    handlers_.join();
  }

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] ConnectionContext& context() { return context_; }

 private:
  void accept() {
    acceptor_.async_accept(asio::make_strand(io_), [this](const error_code& problem,
                                                          tcp::socket socket) {
      if (is_stopped_) {
        return;
      }
      if (problem) {  // no file descriptors left, most likely: connections that end will free some
        accept_timer_.expires_after(kAcceptPause);
        accept_timer_.async_wait(
            [this](const error_code& cancelled) { cancelled ? void() : accept(); });
        return;
      }
      error_code ignored;
      socket.set_option(tcp::no_delay(true), ignored);
      const auto connection = std::make_shared<Connection>(std::move(socket), context_);
      remember(connection);
      connection->start();
      accept();
    });
  }

  /// Forgets closed connections whenever the list has doubled: constant cost a connection.
  void remember(const std::shared_ptr<Connection>& connection) {
    if (connections_.size() >= next_sweep_) {
      std::erase_if(connections_, [](const auto& weak) { return weak.expired(); });
      next_sweep_ = 2 * connections_.size() + 64;
    }
    connections_.push_back(connection);
  }

  asio::io_context io_;
  ConnectionContext context_;
  tcp::acceptor acceptor_;  // its strand guards the four members below
  asio::steady_timer accept_timer_;
  bool is_stopped_ = false;
  std::vector<std::weak_ptr<Connection>> connections_;
  std::size_t next_sweep_ = 64;
  asio::thread_pool handlers_;
  Handler handler_;
  std::uint16_t port_ = 0;
  std::vector<std::thread> io_threads_;
};

HttpServer::HttpServer(HttpServerOptions options, Handler handler, Reporter reporter)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(handler), std::move(reporter))) {}

HttpServer::~HttpServer() = default;

std::uint16_t HttpServer::port() const {
  return impl_->port();
}

std::int64_t HttpServer::num_active() const {
  return impl_->context().num_active;
}

void HttpServer::begin_drain() {
  impl_->context().is_draining = true;
}

void HttpServer::stop() {
  impl_->stop();
}

}  // namespace rigel::server::http
