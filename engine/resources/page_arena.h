#pragma once

#include "engine/contract/ids.h"
#include "engine/lifetime.h"

#include <cstdint>
#include <optional>

namespace rigel {

/// A page of the KV pool.
enum class PageIndex : std::int32_t {};

/// Page 0 is reserved: padding reads and writes may be aimed at it, live requests never own it.
inline constexpr PageIndex kSinkPage{0};

/// Hands out the pages of a pool and takes them back by epoch: a page released at step e is handed out again only after
/// step e has completed, because a step in flight may still touch it. First in, first out. The protocol is
/// lifetime::Pages; this adds the sink and the type of a page's index. Thread: worker.
class PageArena {
 public:
  /// `num_pages` includes the sink; at least 2.
  explicit PageArena(std::int32_t num_pages);

  /// Pages that can be acquired now.
  [[nodiscard]] std::int32_t num_free() const { return pages_.queue().num_free(); }
  /// Pages that will be free once the steps in flight have completed.
  [[nodiscard]] std::int32_t num_retiring() const { return pages_.queue().num_retiring(); }
  /// Pages a request could ever own.
  [[nodiscard]] std::int32_t capacity() const { return pages_.queue().size() - 1; }

  [[nodiscard]] std::int32_t num_owners(PageIndex page) const {
    return pages_.num_owners(static_cast<std::int32_t>(page));
  }

  /// A page with one owner; none where no page is free.
  [[nodiscard]] std::optional<PageIndex> acquire();
  /// One more owner of a page that has an owner.
  void retain(PageIndex page);
  /// One owner less, whose steps touch the page no more after `last_touch`; the last one retires the page until the latest
  /// step of all of them has completed.
  void release(PageIndex page, Epoch last_touch);
  /// Steps up to `completed` have completed: pages that waited for them are free.
  void collect(Epoch completed) { pages_.collect(completed); }

  /// Throws CheckError unless every page is free, retiring, owned or the sink, and only one of these.
  void check_conserved() const;

 private:
  lifetime::Pages<> pages_;
};

}  // namespace rigel
