#pragma once

#include "server/text_codec.h"

#include <string>
#include <vector>

namespace rigel::server {

/// `generate --jsonl`: all lines run together, answers in the order of the lines. Returns the exit code.
int generate_lines(const std::vector<std::string>& lines, const TextCodec& codec,
                   InferenceService& service);

}  // namespace rigel::server
