#pragma once

#include "text/template/syntax.h"

#include <string_view>

namespace rigel::text::chat {

/// The test called `name` (what follows `is`), or nullptr.
TestFunction find_test(std::string_view name);

}  // namespace rigel::text::chat
