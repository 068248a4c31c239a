#pragma once

#include "text/template/syntax.h"

#include <string_view>

namespace rigel::text::chat {

/// The filter called `name`, or nullptr.
FilterFunction find_filter(std::string_view name);

}  // namespace rigel::text::chat
