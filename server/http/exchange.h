#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rigel::server::http {

struct Request {
  std::string method;         // "GET", "POST", ...
  std::string path;           // without the query
  std::string authorization;  // the header's value; empty: none
  std::string body;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};  // further ones
};

/// One request and its answer: either one respond(), or begin_stream(), any number of write() and one end_stream().
/// Thread: any, also several at once. Nothing here blocks on the client.
class Exchange {
 public:
  virtual ~Exchange() = default;

  [[nodiscard]] virtual const Request& request() const = 0;

  virtual void respond(Response response) = 0;

  /// Sends the head of a 200 answer of unknown length.
  virtual void begin_stream(std::string_view content_type) = 0;

  /// Queues bytes. False once the client is gone, or so far behind that the server has given it up.
  virtual bool write(std::string_view bytes) = 0;
  virtual void end_stream() = 0;

  /// Calls `action` once when the client goes away before the answer's end; at once if it has gone already. The action is
  /// dropped at the answer's end.
  virtual void on_client_gone(std::function<void()> action) = 0;
};

}  // namespace rigel::server::http
