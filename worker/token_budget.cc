#include "worker/token_budget.h"

#include <algorithm>
#include <numeric>

namespace rigel {

void fair_shares(std::span<const std::int32_t> needs, std::int32_t budget,
                 std::vector<std::int32_t>& shares) {
  shares.assign(needs.size(), 0);
  std::vector<std::size_t> order(needs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t index) { return needs[index]; });

  std::int32_t left = std::max(budget, 0);
  for (std::size_t met = 0; met < order.size(); ++met) {
    const auto num_open = static_cast<std::int32_t>(order.size() - met);
    const std::int32_t need = needs[order[met]];
    if (need <= left / num_open) {
      shares[order[met]] = need;
      left -= need;
      continue;
    }
    // Nobody left needs as little as an equal share, so everybody left gets one.
    std::vector<std::size_t> open(order.begin() + static_cast<std::ptrdiff_t>(met), order.end());
    std::ranges::sort(open);
    const std::int32_t equal = left / num_open;
    std::int32_t remainder = left % num_open;
    for (const std::size_t index : open) {
      shares[index] = equal;
      if (remainder > 0 && needs[index] > equal) {
        ++shares[index];
        --remainder;
      }
    }
    return;
  }
}

}  // namespace rigel
