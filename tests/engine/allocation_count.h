#pragma once

#include <cstdint>

namespace rigel::testing {

/// Calls of operator new by this thread so far, in this test program.
[[nodiscard]] std::uint64_t num_allocations();

}  // namespace rigel::testing
