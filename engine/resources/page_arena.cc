#include "engine/resources/page_arena.h"

#include "tensor/error.h"

#include <algorithm>

namespace rigel {

PageArena::PageArena(std::int32_t num_pages)
    : num_pages_(num_pages), owners_(static_cast<std::size_t>(std::max(num_pages, 0)), 0) {
  RIGEL_CHECK(num_pages >= 2, "a KV pool has the sink and at least one page, got {} pages",
              num_pages);
  owners_[static_cast<std::size_t>(kSinkPage)] = 1;
  for (std::int32_t page = 1; page < num_pages; ++page) {
    free_.push_back(static_cast<PageIndex>(page));
  }
}

std::optional<PageIndex> PageArena::acquire() {
  if (free_.empty()) {
    return std::nullopt;
  }
  const PageIndex page = free_.front();
  free_.pop_front();
  owners_[static_cast<std::size_t>(page)] = 1;
  return page;
}

void PageArena::retain(PageIndex page) {
  auto& owners = owners_.at(static_cast<std::size_t>(page));
  RIGEL_CHECK(owners > 0, "page {} has no owner to share it with", static_cast<int>(page));
  ++owners;
}

void PageArena::release(PageIndex page, Epoch last_touch) {
  auto& owners = owners_.at(static_cast<std::size_t>(page));
  RIGEL_CHECK(owners > 0 && page != kSinkPage, "page {} has no owner to release it",
              static_cast<int>(page));
  if (--owners == 0) {
    retiring_.push_back({page, last_touch});
  }
}

void PageArena::collect(Epoch completed) {
  const auto waits = [completed](const Retired& retired) { return retired.last_touch > completed; };
  const auto done = std::stable_partition(retiring_.begin(), retiring_.end(), waits);
  for (auto retired = done; retired != retiring_.end(); ++retired) {
    free_.push_back(retired->page);
  }
  retiring_.erase(done, retiring_.end());
}

void PageArena::check_conserved() const {
  std::vector<int> places(owners_.size(), 0);
  for (std::size_t page = 0; page < owners_.size(); ++page) {
    places[page] += owners_[page] > 0 ? 1 : 0;
  }
  for (const PageIndex page : free_) {
    ++places[static_cast<std::size_t>(page)];
  }
  for (const Retired& retired : retiring_) {
    ++places[static_cast<std::size_t>(retired.page)];
  }
  for (std::size_t page = 0; page < places.size(); ++page) {
    RIGEL_CHECK(places[page] == 1, "page {} is in {} places", page, places[page]);
  }
}

}  // namespace rigel
