#include "server/http/connection.h"

#include "server/api/error.h"

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <fmt/core.h>

#include <utility>

namespace rigel::server::http {
namespace {

namespace asio = boost::asio;
namespace beast_http = boost::beast::http;
using boost::system::error_code;

constexpr std::chrono::milliseconds kLingerTimeout{2'000};

std::string to_string(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

Request plain_request(beast_http::request<beast_http::string_body> message) {
  Request request;
  request.method = to_string(message.method_string());
  const std::string target = to_string(message.target());
  request.path = target.substr(0, target.find('?'));
  request.authorization = to_string(message[beast_http::field::authorization]);
  request.body = std::move(message.body());
  return request;
}

struct Refusal {
  int status;
  std::string message;
};

Refusal refusal_of(const error_code& problem, const HttpServerOptions& options) {
  if (problem == beast_http::error::header_limit) {
    return {431, fmt::format("The headers are larger than {} bytes", options.max_header_bytes)};
  }
  if (problem == beast_http::error::body_limit) {
    return {413, fmt::format("The body is larger than {} bytes", options.max_body_bytes)};
  }
  return {400, fmt::format("Not an HTTP request: {}", problem.message())};
}

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, ConnectionContext& context)
    : socket_(std::move(socket)), context_(context), timer_(socket_.get_executor()) {}

void Connection::start() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    self->arm_timer(self->context_.options.stall_timeout);
    self->read();
  });
}

void Connection::close() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->drop(); });
}

void Connection::arm_timer(std::chrono::milliseconds timeout) {
  timer_.expires_after(timeout);
  timer_.async_wait([weak = weak_from_this()](const error_code& problem) {
    const auto self = weak.lock();
    if (!problem && self && self->timer_.expiry() <= std::chrono::steady_clock::now()) {
      self->drop();
    }
  });
}

void Connection::read() {
  socket_.async_read_some(
      asio::buffer(arrived_),
      [self = shared_from_this()](const error_code& problem, std::size_t num_bytes) {
        self->on_read(problem, num_bytes);
      });
}

void Connection::on_read(const error_code& problem, std::size_t num_bytes) {
  if (state_ == State::kClosed) {
    return;
  }
  if (problem && is_last_output_ && is_writing_) {
    is_peer_done_ =
        true;  // a client may leave as soon as it has its answer: whether it has, the write will tell
    return;
  }
  if (problem) {
    return drop();
  }
  if (state_ != State::kLingering) {
    input_.append(arrived_.data(), num_bytes);
  }
  if (state_ == State::kReading) {
    arm_timer(context_.options.stall_timeout);
    feed_parser();
  } else if (input_.size() > context_.options.max_body_bytes + context_.options.max_header_bytes) {
    return drop();  // pipelines more than one request may be large
  }
  if (state_ != State::kClosed) {
    read();
  }
}

void Connection::feed_parser() {
  if (input_.empty()) {
    return;
  }
  if (!parser_) {
    parser_.emplace();
    parser_->eager(true);
    parser_->header_limit(context_.options.max_header_bytes);
    parser_->body_limit(context_.options.max_body_bytes);
    continue_sent_ = false;
  }
  error_code problem;
  // put() stops at each stage's end, so it is called until it wants more.
  while (!parser_->is_done() && !problem && !input_.empty()) {
    const std::size_t num_used = parser_->put(asio::buffer(input_), problem);
    input_.erase(0, num_used);
  }
  if (problem && problem != beast_http::error::need_more) {
    Refusal refusal = refusal_of(problem, context_.options);
    return refuse(refusal.status, std::move(refusal.message));
  }
  if (parser_->is_done()) {
    return accept_request();
  }
  const bool waits_for_leave =
      parser_->is_header_done() && !continue_sent_ &&
      boost::beast::iequals(parser_->get()[beast_http::field::expect], "100-continue");
  if (waits_for_leave) {
    continue_sent_ = true;
    // A few bytes into an empty send buffer; a failure shows up at the next read.
    error_code ignored;
    asio::write(socket_, asio::buffer(kContinue), ignored);
  }
}

void Connection::accept_request() {
  const auto& message = parser_->get();
  // HTTP/1.0 knows no chunks, so the connection's end is what ends a stream: its connections are not kept.
  const bool is_http_1_0 = message.version() < 11;
  const WireForm form{.keep_alive = message.keep_alive() && !is_http_1_0 && !context_.is_draining,
                      .is_http_1_0 = is_http_1_0,
                      .without_body = message.method() == beast_http::verb::head};
  const std::weak_ptr<Connection> weak = weak_from_this();
  // The exchange may outlive the connection: it holds it weakly.
  const auto wake = [weak] {
    if (const auto self = weak.lock()) {
      asio::post(self->socket_.get_executor(), [self] { self->flush(); });
    }
  };
  const auto give_up = [weak] {
    if (const auto self = weak.lock()) {
      self->close();
    }
  };
  exchange_ = std::make_shared<LiveExchange>(plain_request(parser_->release()), form,
                                             context_.options.max_unsent_bytes, wake, give_up);
  parser_.reset();
  state_ = State::kAnswering;
  timer_.cancel();
  ++context_.num_active;
  context_.dispatch(exchange_);
}

void Connection::refuse(int status, std::string message) {
  parser_.reset();
  input_.clear();
  exchange_ = std::make_shared<LiveExchange>(
      Request{}, WireForm{.keep_alive = false}, context_.options.max_unsent_bytes, [] {}, [] {});
  state_ = State::kAnswering;
  ++context_.num_active;
  exchange_->respond(
      {.status = status, .body = error_body({.status = status, .message = std::move(message)})});
  flush();
}

void Connection::flush() {
  if (is_writing_ || state_ != State::kAnswering) {
    return;
  }
  if (is_last_output_) {
    return finish_exchange();
  }
  LiveExchange::Drained drained = exchange_->drain();
  output_ = std::move(drained.bytes);
  is_last_output_ = drained.is_last;
  if (output_.empty()) {
    return is_last_output_ ? finish_exchange() : void();
  }
  is_writing_ = true;
  arm_timer(context_.options.stall_timeout);
  asio::async_write(socket_, asio::buffer(output_),
                    [self = shared_from_this()](const error_code& problem, std::size_t) {
                      self->on_written(problem);
                    });
}

void Connection::on_written(const error_code& problem) {
  is_writing_ = false;
  if (state_ == State::kClosed) {
    return;
  }
  if (problem) {
    return drop();
  }
  timer_.cancel();
  flush();
}

void Connection::finish_exchange() {
  is_last_output_ = false;
  exchange_->forget_client();
  report(exchange_->status());
  const bool keep_alive = exchange_->form().keep_alive && !context_.is_draining;
  exchange_.reset();
  if (is_peer_done_) {
    return drop();
  }
  if (!keep_alive) {
    return linger();
  }
  state_ = State::kReading;
  arm_timer(context_.options.idle_timeout);
  feed_parser();
}

// Closing a socket with unread bytes resets it, and the client may lose the answer: say goodbye, then read what comes.
void Connection::linger() {
  state_ = State::kLingering;
  input_.clear();
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  arm_timer(kLingerTimeout);
}

void Connection::drop() {
  if (state_ == State::kClosed) {
    return;
  }
  state_ = State::kClosed;
  timer_.cancel();
  error_code ignored;
  socket_.close(ignored);
  if (exchange_) {
    exchange_->client_gone();
    report(499);
    exchange_.reset();
  }
}

void Connection::report(int status) {
  --context_.num_active;
  if (context_.report) {
    context_.report(
        {.request = exchange_->request(), .status = status, .duration = exchange_->age()});
  }
}

}  // namespace rigel::server::http
