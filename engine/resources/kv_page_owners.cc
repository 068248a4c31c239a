// Who owns which page of the KV cache.

#include "engine/resources/kv_cache.h"
#include "tensor/error.h"

#include <algorithm>

namespace rigel {

std::optional<PageIndex> KvCache::take_page() {
  std::optional<PageIndex> page = arena_.acquire();
  if (!page && index_) {
    if (const auto evicted = index_->evict(completed_)) {
      arena_.release(evicted->page, evicted->last_touch);
      arena_.collect(completed_);
      page = arena_.acquire();
    }
  }
  return page;
}

void KvCache::share_page(PageIndex page) {
  if (page == kNoPage) {
    return;
  }
  arena_.retain(page);
  if (index_ && index_->contains(page)) {
    index_->set_shared(page, true);
  }
}

void KvCache::drop_page(PageIndex page, Epoch last_touch) {
  if (page == kNoPage) {
    return;
  }
  arena_.release(page, last_touch);
  if (index_ && index_->contains(page)) {
    index_->note_touch(page, last_touch);
    index_->set_shared(page, arena_.num_owners(page) > 1);
  }
}

std::int32_t KvCache::num_available() const {
  return arena_.num_free() + arena_.num_retiring() + (index_ ? index_->num_evictable() : 0);
}

AdmitOutcome KvCache::check_admission(std::int32_t num_tokens, std::int32_t num_promised) const {
  using Reason = AdmitOutcome::Reason;
  if (config_.pages_for(num_tokens) > arena_.capacity() || num_tokens > config_.max_length) {
    return {.reason = Reason::kNeverFits, .resource = key()};
  }
  const std::int32_t wanted = std::min(config_.pages_for(num_tokens) + 1, arena_.capacity());
  const std::int32_t num_short = wanted - (num_available() - num_promised);
  return num_short > 0 ? AdmitOutcome{.reason = Reason::kNotReady,
                                      .pages_short = num_short,
                                      .resource = key()}
                       : AdmitOutcome{};
}

void KvCache::assert_pages_conserved() const {
  arena_.check_conserved();
  std::vector<std::int32_t> owners(static_cast<std::size_t>(config_.num_pages), 0);
  const auto count = [&owners](std::span<const PageIndex> pages) {
    for (const PageIndex page : pages) {
      if (page != kNoPage) {
        ++owners[static_cast<std::size_t>(page)];
      }
    }
  };
  count({&kSinkPage, 1});
  for (const CacheStream& stream : streams_) {
    count(stream.pages);
    count(stream.reserved);
    count(stream.lease);
  }
  for (const StreamUndo& undo : undo_) {
    count(undo.old_pages);
    count({&undo.shared_page, 1});
  }
  for (std::int32_t index = 0; index < config_.num_pages; ++index) {
    const PageIndex page{index};
    const bool is_indexed = index_ && index_->contains(page);
    const std::int32_t counted = owners[static_cast<std::size_t>(index)] + (is_indexed ? 1 : 0);
    RIGEL_CHECK(counted == arena_.num_owners(page), "page {} has {} owners, the arena counts {}",
                index, counted, arena_.num_owners(page));
  }
  if (index_) {
    index_->check();
  }
  if (host_arena_) {
    host_arena_->check_conserved();
    std::int32_t num_held = 0;
    for (const CacheRow& row : rows_) {
      num_held += num_host_pages(row);
    }
    RIGEL_CHECK(
        num_held + host_arena_->num_free() + host_arena_->num_retiring() == host_arena_->capacity(),
        "{} pages of the host pool have an owner, {} are free", num_held, host_arena_->num_free());
  }
}

}  // namespace rigel
