#pragma once

#include "server/http/exchange.h"

#include <string>
#include <string_view>

namespace rigel::server::http {

/// What the bytes of an answer depend on besides the answer.
struct WireForm {
  bool keep_alive = true;
  bool is_http_1_0 = false;
  bool without_body = false;  // HEAD
};

/// Pure functions that spell HTTP/1.1.
[[nodiscard]] std::string_view reason_phrase(int status);
[[nodiscard]] std::string spell_response(const Response& response, const WireForm& form);
[[nodiscard]] std::string spell_stream_head(std::string_view content_type, const WireForm& form);

/// One chunk of a chunked body; `bytes` must not be empty, an empty chunk ends the body.
[[nodiscard]] std::string spell_chunk(std::string_view bytes);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";
inline constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

}  // namespace rigel::server::http
