#pragma once

#include "engine/resources/kv_cache.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace rigel {

// Who gets the pages of a KV cache, told of anything that holds some: requests of a language model, rows of a node. A holder
// begins when the pages of its tokens plus one are there, takes more as it grows, and the newest loses its own when they run
// out, so that the oldest always goes on. Holders stand in the order in which they began; `view(holder)` gives a PageHolder.

struct PageHolder {
  RequestHandle handle;
  std::int32_t num_tokens = 0;  // that it is known to need
  bool is_active = true;        // false: it has lost its pages and waits for them
  bool grows = false;           // it has not yet all the pages that num_tokens need
};

/// Pages of a holder's tokens and of one page of growth.
[[nodiscard]] inline std::int32_t pages_wanted(const KvCache& cache, std::int32_t num_tokens) {
  return std::min(cache.config().pages_for(num_tokens) + 1, cache.arena().capacity());
}

/// Whether somebody with `num_tokens` may begin or go on beside the active holders.
template <class Holders, class View>
[[nodiscard]] bool pages_suffice(const KvCache& cache, std::int32_t num_tokens,
                                 const Holders& holders, const View& view) {
  std::int32_t promised = 0;
  bool anybody_active = false;
  for (const auto& entry : holders) {
    const PageHolder holder = view(entry);
    if (!holder.is_active) {
      continue;
    }
    anybody_active = true;
    if (holder.grows) {
      promised +=
          std::max(0, pages_wanted(cache, holder.num_tokens) - cache.num_pages(holder.handle));
    }
  }
  // Alone, it has every page, now or when the steps in flight have completed.
  return !anybody_active || cache.num_available() - promised >= pages_wanted(cache, num_tokens);
}

/// Where the newest active holder stands, who loses its pages; the end where at most one is active.
template <class Holders, class View>
[[nodiscard]] auto newest_active(Holders& holders, const View& view) {
  auto newest = holders.end();
  std::size_t num_active = 0;
  for (auto entry = holders.begin(); entry != holders.end(); ++entry) {
    if (view(*entry).is_active) {
      newest = entry;
      ++num_active;
    }
  }
  return num_active < 2 ? holders.end() : newest;
}

}  // namespace rigel
