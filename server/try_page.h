#pragma once

#include <string_view>

namespace rigel::server {

/// A page to try the model in a browser: one file, no outside resource.
extern const std::string_view kTryPage;

}  // namespace rigel::server
