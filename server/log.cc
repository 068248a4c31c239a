#include "server/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

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
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "rigel", std::make_shared<spdlog::sinks::stderr_color_sink_mt>()));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  spdlog::set_level(parsed);
  return true;
}

}  // namespace rigel::server
