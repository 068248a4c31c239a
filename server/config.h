#pragma once

#include "worker/options.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rigel::server {

/// Bytes of "1073741824", "512M", "1.5G": K, M, G and T are powers of 1,024, a B or iB may follow.
/// Throws std::invalid_argument saying what is allowed.
[[nodiscard]] std::int64_t parse_size(std::string_view text);

/// Puts the options of a --config FILE into the command line `arguments` (without the program's name), where the command
/// line gives neither them nor their negations itself. Keys are options' names with dashes or underscores, `model` is the
/// model; a list gives its option once an item. Throws std::invalid_argument naming file, place and reason.
void merge_config_file(std::vector<std::string>& arguments);

/// The operations that RIGEL_SIMT may name.
[[nodiscard]] std::span<const std::string_view> device_text_names();

/// Takes what the environment says about the virtual device: RIGEL_SIMT (all, or device_text_names() with commas between),
/// SIMT_ORDER (ascending, descending, random), SIMT_SEED. The one place where the program reads its environment.
/// Throws std::invalid_argument naming variable and value.
void read_environment(WorkerOptions& options);

}  // namespace rigel::server
