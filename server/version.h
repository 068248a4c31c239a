#pragma once

#include <string_view>

namespace rigel::server {

inline constexpr std::string_view kVersion = RIGEL_VERSION;  // the project's, from the build

}  // namespace rigel::server
