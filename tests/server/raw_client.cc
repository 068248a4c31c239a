#include "tests/server/raw_client.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>

namespace rigel::server {

RawClient::RawClient(std::uint16_t port, int receive_buffer_bytes)
    : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  if (receive_buffer_bytes > 0) {
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes,
                 sizeof receive_buffer_bytes);
  }
  const timeval timeout{.tv_sec = 5, .tv_usec = 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
}

RawClient::~RawClient() {
  close();
}

void RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t num_sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (num_sent <= 0) {
      return;  // the server has closed: what it said can still be read
    }
    bytes.remove_prefix(static_cast<std::size_t>(num_sent));
  }
}

bool RawClient::receive() {
  char buffer[65536];
  const ssize_t num_bytes = ::recv(socket_, buffer, sizeof buffer, 0);
  if (num_bytes <= 0) {
    return false;
  }
  received_.append(buffer, static_cast<std::size_t>(num_bytes));
  return true;
}

RawResponse RawClient::read_response(bool without_body) {
  std::size_t head_end = 0;
  while ((head_end = received_.find("\r\n\r\n")) == std::string::npos) {
    if (!receive()) {
      return {};
    }
  }
  RawResponse response;
  response.status = std::stoi(received_.substr(9, 3));
  for (std::size_t at = received_.find("\r\n") + 2; at < head_end + 2;) {
    const std::size_t end = received_.find("\r\n", at);
    const std::size_t colon = received_.find(": ", at);
    std::string name = received_.substr(at, colon - at);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    response.headers[name] = received_.substr(colon + 2, end - colon - 2);
    at = end + 2;
  }
  received_.erase(0, head_end + 4);
  if (without_body) {
    return response;
  }
  const auto take = [&](std::size_t num_bytes) {
    while (received_.size() < num_bytes && receive()) {
    }
    std::string taken = received_.substr(0, num_bytes);
    received_.erase(0, num_bytes);
    return taken;
  };
  if (response.headers.count("content-length") != 0) {
    response.body = take(std::stoul(response.headers["content-length"]));
  } else if (response.headers["transfer-encoding"] == "chunked") {
    for (;;) {
      while (received_.find("\r\n") == std::string::npos) {
        if (!receive()) {
          return {};
        }
      }
      const std::size_t line_end = received_.find("\r\n");
      const std::size_t num_bytes = std::stoul(received_.substr(0, line_end), nullptr, 16);
      received_.erase(0, line_end + 2);
      response.body += take(num_bytes);
      take(2);
      if (num_bytes == 0) {
        break;
      }
    }
  } else {
    while (receive()) {
    }
    response.body = std::move(received_);
    received_.clear();
  }
  return response;
}

RawResponse RawClient::call(std::string_view method, std::string_view path, std::string_view body,
                            std::string_view more_headers) {
  send(spell_request(method, path, body, more_headers));
  return read_response();
}

bool RawClient::read_until(std::string_view text) {
  while (received_.find(text) == std::string::npos) {
    if (!receive()) {
      return false;
    }
  }
  return true;
}

bool RawClient::is_closed_by_server() {
  while (receive()) {
  }
  return errno != EAGAIN && errno != EWOULDBLOCK;
}

void RawClient::close() {
  if (socket_ >= 0) {
    ::close(std::exchange(socket_, -1));
  }
}

void RawClient::reset() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close();
}

std::string spell_request(std::string_view method, std::string_view path, std::string_view body,
                          std::string_view more_headers) {
  return fmt::format("{} {} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n{}\r\n{}", method, path,
                     body.size(), more_headers, body);
}

}  // namespace rigel::server
