#include "tensor/error.h"

namespace rigel::detail {

void fail_check(const char* condition, const char* file, int line, const std::string& message) {
  throw CheckError(fmt::format("{} [{} at {}:{}]", message, condition, file, line));
}

}  // namespace rigel::detail
