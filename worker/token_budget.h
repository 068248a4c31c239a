#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rigel {

/// Max-min fair shares of `budget` tokens: the smallest needs are met first, the rest share equally, and what does not divide
/// goes to the earliest. Writes shares[i] <= needs[i]; their sum is min(budget, sum of needs). O(n log n).
///
/// Source: the water-filling form of max-min fairness, Bertsekas and Gallager, Data Networks, section 6.5.2.
void fair_shares(std::span<const std::int32_t> needs, std::int32_t budget,
                 std::vector<std::int32_t>& shares);

}  // namespace rigel
