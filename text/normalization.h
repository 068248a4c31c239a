#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace rigel::text {

/// `text` in Unicode Normalization Form C (UAX 15), or nothing if it certainly is in that form already.
/// Ill-formed bytes pass unchanged and end a combining sequence. Thread: any. Cost: O(bytes).
std::optional<std::string> to_nfc(std::string_view text);

}  // namespace rigel::text
