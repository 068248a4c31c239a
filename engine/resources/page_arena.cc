#include "engine/resources/page_arena.h"

#include "tensor/error.h"

#include <vector>

namespace rigel {

namespace {

std::int32_t checked(std::int32_t num_pages) {
  RIGEL_CHECK(num_pages >= 2, "a KV pool has the sink and at least one page, got {} pages",
              num_pages);
  return num_pages;
}

}  // namespace

PageArena::PageArena(std::int32_t num_pages) : pages_(checked(num_pages)) {
  const std::optional<std::int32_t> sink = pages_.acquire();
  RIGEL_CHECK(sink == static_cast<std::int32_t>(kSinkPage), "the sink is the first page");
}

std::optional<PageIndex> PageArena::acquire() {
  const std::optional<std::int32_t> page = pages_.acquire();
  return page ? std::optional(static_cast<PageIndex>(*page)) : std::nullopt;
}

void PageArena::retain(PageIndex page) {
  pages_.retain(static_cast<std::int32_t>(page));
}

void PageArena::release(PageIndex page, Epoch last_touch) {
  RIGEL_CHECK(page != kSinkPage, "the sink page is nobody's to release");
  pages_.release(static_cast<std::int32_t>(page), last_touch);
}

void PageArena::check_conserved() const {
  const auto& queue = pages_.queue();
  std::vector<int> places(static_cast<std::size_t>(queue.size()), 0);
  for (std::int32_t page = 0; page < queue.size(); ++page) {
    places[static_cast<std::size_t>(page)] += num_owners(static_cast<PageIndex>(page)) > 0 ? 1 : 0;
  }
  for (std::int32_t position = 0; position < queue.num_free() + queue.num_retiring(); ++position) {
    ++places[static_cast<std::size_t>(queue.at(position))];
  }
  for (std::size_t page = 0; page < places.size(); ++page) {
    RIGEL_CHECK(places[page] == 1, "page {} is in {} places", page, places[page]);
  }
}

}  // namespace rigel
