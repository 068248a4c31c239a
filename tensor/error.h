#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>

namespace rigel {

/// A broken invariant or precondition: a bug of the program, never the outcome of bad user input.
class CheckError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// A call of the device or of one of its libraries failed. `what()` names call, code, file and line.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace detail {
[[noreturn, gnu::cold]] void fail_check(const char* condition, const char* file, int line,
                                        const std::string& message);
}  // namespace detail

}  // namespace rigel

/// Throws CheckError unless `condition` holds, in every build. The message is a fmt format: static text first, values last.
#define RIGEL_CHECK(condition, ...)                                                            \
  do {                                                                                         \
    if (!(condition)) [[unlikely]] {                                                           \
      ::rigel::detail::fail_check(#condition, __FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
    }                                                                                          \
  } while (false)
