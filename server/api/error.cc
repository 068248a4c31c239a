#include "server/api/error.h"

#include "server/api/json_writer.h"

namespace rigel::server {

std::string_view error_type(int status) {
  switch (status) {
    case 401:
      return "AuthenticationError";
    case 404:
      return "NotFoundError";
    case 405:
      return "MethodNotAllowedError";
    case 413:
      return "RequestTooLargeError";
    case 500:
      return "InternalServerError";
    case 503:
      return "ServiceUnavailableError";
    default:
      return "BadRequestError";
  }
}

std::string error_body(const ApiError& error) {
  JsonWriter json;
  json.begin_object().key("error").begin_object();
  json.field("message", error.message).field("type", error_type(error.status)).key("param");
  error.param.empty() ? json.value(nullptr) : json.value(error.param);
  json.field("code", error.status).end_object().end_object();
  return json.take();
}

}  // namespace rigel::server
