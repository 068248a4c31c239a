#include "simt/status.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace simt {

void Status::append(const char* format, ...) {
  const auto used = std::strlen(message_);
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message_ + used, kCapacity - used, format, arguments);
  va_end(arguments);
}

}  // namespace simt
