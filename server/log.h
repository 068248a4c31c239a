#pragma once

#include <string>
#include <string_view>

namespace rigel::server {

/// The program's log, on stderr. Thread: any.
void log_debug(std::string_view message);
void log_info(std::string_view message);
void log_warning(std::string_view message);
void log_error(std::string_view message);

/// `level`: trace, debug, info, warning, error, critical or off. Once, before the first line. False: no such level.
bool configure_log(const std::string& level);

}  // namespace rigel::server
