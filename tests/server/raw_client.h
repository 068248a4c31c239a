#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace rigel::server {

struct RawResponse {
  int status = 0;                              // 0: the connection ended first
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
};

/// A blocking HTTP client on a bare socket, sharing nothing with the server, that can also misbehave.
class RawClient {
 public:
  explicit RawClient(std::uint16_t port, int receive_buffer_bytes = 0);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void send(std::string_view bytes);
  RawResponse read_response(bool without_body = false);
  RawResponse call(std::string_view method, std::string_view path, std::string_view body = {},
                   std::string_view more_headers = {});

  /// Reads until `text` has come. False if the connection ended or 5 s have passed.
  bool read_until(std::string_view text);

  /// True if the server has closed the connection (within 5 s).
  bool is_closed_by_server();

  void close();  // FIN
  void reset();  // RST

 private:
  bool receive();

  int socket_ = -1;
  std::string received_;
};

[[nodiscard]] std::string spell_request(std::string_view method, std::string_view path,
                                        std::string_view body, std::string_view more_headers = {});

}  // namespace rigel::server
