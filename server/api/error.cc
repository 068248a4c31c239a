#include "server/api/error.h"

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

}  // namespace rigel::server
