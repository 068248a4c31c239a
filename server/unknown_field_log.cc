#include "server/unknown_field_log.h"

#include "server/log.h"

#include <fmt/core.h>

namespace rigel::server {
namespace {

constexpr std::size_t kMaxNames = 256;
constexpr std::size_t kMaxFieldBytes = 64;

}  // namespace

void UnknownFieldLog::note(std::string_view where, const std::vector<std::string>& fields) {
  const std::lock_guard lock(mutex_);
  for (const std::string& field : fields) {
    const std::string name = field.substr(0, kMaxFieldBytes);
    if (noted_.size() < kMaxNames && noted_.insert(name).second) {
      log_warning(fmt::format("{}: unknown field '{}' is ignored", where, name));
    }
  }
}

}  // namespace rigel::server
