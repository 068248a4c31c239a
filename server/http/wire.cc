#include "server/http/wire.h"

#include <fmt/core.h>

#include <iterator>

namespace rigel::server::http {
namespace {

std::string_view connection_header(const WireForm& form) {
  return form.keep_alive ? "" : "Connection: close\r\n";
}

}  // namespace

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Payload Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    default:
      return "Unknown";
  }
}

std::string spell_response(const Response& response, const WireForm& form) {
  std::string out;
  const auto to = std::back_inserter(out);
  fmt::format_to(to, "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}",
                 response.status, reason_phrase(response.status), response.content_type,
                 response.body.size(), connection_header(form));
  for (const auto& [name, value] : response.headers) {
    fmt::format_to(to, "{}: {}\r\n", name, value);
  }
  out += "\r\n";
  if (!form.without_body) {
    out += response.body;
  }
  return out;
}

std::string spell_stream_head(std::string_view content_type, const WireForm& form) {
  return fmt::format("HTTP/1.1 200 OK\r\nContent-Type: {}\r\nCache-Control: no-cache\r\n{}{}\r\n",
                     content_type, form.is_http_1_0 ? "" : "Transfer-Encoding: chunked\r\n",
                     connection_header(form));
}

std::string spell_chunk(std::string_view bytes) {
  return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
}

}  // namespace rigel::server::http
