#pragma once

#include <cstdint>

namespace rigel::testing {

/// Calls of operator new so far, in the whole test program.
[[nodiscard]] std::int64_t num_allocations();

}  // namespace rigel::testing
