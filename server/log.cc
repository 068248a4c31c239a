#include "server/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace rigel::server {

void log_debug(std::string_view message) {
  spdlog::debug("{}", message);
}
void log_info(std::string_view message) {
  spdlog::info("{}", message);
}
void log_warning(std::string_view message) {
  spdlog::warn("{}", message);
}
void log_error(std::string_view message) {
  spdlog::error("{}", message);
}

bool configure_log(const std::string& level) {
  const spdlog::level::level_enum parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off && level != "off") {
    return false;
  }
  spdlog::set_default_logger(spdlog::stderr_color_mt("rigel"));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  spdlog::set_level(parsed);
  return true;
}

}  // namespace rigel::server
