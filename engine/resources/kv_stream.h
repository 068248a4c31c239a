#pragma once

#include "engine/lifetime_residency.h"
#include "engine/resources/page_arena.h"
#include "engine/resources/prefix_index.h"
#include "engine/step.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rigel {

/// An index of a stream whose page was let go because it is too old.
inline constexpr PageIndex kNoPage{-1};

/// The keys and values of one label of one request, as the cache keeps book of them.
struct alignas(64) CacheStream {
  // What every step touches stands together, in one cache line.
  RequestHandle
      user;  // whose steps may come: the row's owner while it is on the device; else padding
  std::int32_t stored_length = 0;
  /// Tokens up to here go to pages that have this owner alone and that the device's page table has: a step with no more needs
  /// nothing. -1: not known. It stays true until pages change or tokens are forgotten, as only full pages get more owners.
  std::int32_t open_end = -1;
  std::int32_t undo_index = -1;  // its entry among what a staged step changed
  bool is_admitted = false;      // a step that was admitted is not committed yet
  bool is_converted = false;     // begins with a lease, and that step is not committed yet
  std::uint64_t step_stamp = 0;  // the admission that saw it last
  Epoch last_step = 0;           // the last committed step with a segment of it
  std::uint64_t generation = 0;  // counts changes of what is stored

  // What a step touches where its tokens begin a page.
  alignas(64)
      std::vector<PageIndex> pages;  // by index in the page table; may reach beyond what is stored
  std::int32_t num_published = 0;    // leading pages that the device's page table has
  std::int32_t num_holes = 0;        // leading indices without a page
  std::vector<PageIndex> reserved;  // for the forks and private copies of the step that is admitted

  std::vector<PageIndex>
      lease;  // a cached prefix that the first step takes over; nothing is stored before

  // The chain of this stream's full pages in the prefix index.
  PrefixIndex::Node chain_end;
  std::int32_t num_chained = 0;
  bool is_chained = true;  // false once it holds what no token ids stand for

  /// So many more tokens need nothing of the pool and of the page table.
  [[nodiscard]] bool has_room(std::int32_t num_tokens) const {
    return stored_length + num_tokens <= open_end;
  }
};

/// The streams by row of the page table. A copy in a sweep over lanes: what that reads of its own is then in registers.
struct CacheStreams {
  std::span<CacheStream> by_table_row;
  std::int32_t num_rows;

  [[nodiscard]] std::int32_t table_row(const Segment& segment) const {
    return static_cast<std::int32_t>(segment.label) * num_rows + segment.handle.row;
  }
  [[nodiscard]] CacheStream& operator[](std::int32_t table_row) const {
    return by_table_row[static_cast<std::size_t>(table_row)];
  }
  /// The segment's stream; null where the cache has none for it now.
  [[nodiscard]] CacheStream* find(const Segment& segment) const {
    const auto index = static_cast<std::size_t>(table_row(segment));
    return index < by_table_row.size() && by_table_row[index].user == segment.handle
               ? &by_table_row[index]
               : nullptr;
  }
  /// For the first sweep over a step's segments: has the book of one behind `index` on its way from memory.
  // Always inline: GCC takes a function that does nothing else for one without effect, and drops its calls.
  [[gnu::always_inline]] inline void prefetch_beyond(std::span<const Segment> segments,
                                                     std::size_t index) const {
    constexpr std::size_t kAhead = 12;
    if (index + kAhead < segments.size()) {
      const std::int32_t row = std::max(table_row(segments[index + kAhead]), 0);  // of padding: any
      __builtin_prefetch(by_table_row.data() + row, /*rw=*/1);
    }
  }
};

/// One request's streams, and where they are while they are on the host.
struct alignas(64) CacheRow {
  struct HostPage {
    PageIndex page{};
    std::int32_t stream = 0;
    std::int32_t index = 0;    // in the stream's page table
    std::int32_t shared = -1;  // the entry of another stream that this one has its page with
  };
  RequestHandle handle;
  lifetime::Residency residency;  // its steps are noted in the streams: see KvCache::residency_of
  bool open = false;
  std::uint64_t fork_stamp = 0;  // the sweep over a step's requests that saw it last
  std::vector<HostPage> host_pages;
  std::uint64_t host_generations = 0;  // sum over the streams when they left
};

/// What a pre-planned step changed in a stream, to be taken back.
struct StreamUndo {
  std::int32_t stream = 0;
  std::int32_t num_pages = 0;
  std::int32_t num_reserved = 0;
  std::int32_t num_leased = 0;
  std::int32_t stored_length = 0;
  std::int32_t num_published = 0;
  std::int32_t num_holes = 0;
  std::uint64_t generation = 0;
  bool was_admitted = false;
  bool was_converted = false;
  PrefixIndex::Node chain_end{};
  std::int32_t num_chained = 0;
  bool was_chained = true;
  bool is_replaced = false;            // by a fork: `old_pages` are the stream's before it
  std::vector<PageIndex> old_pages{};  // owned by this entry
  std::int32_t private_index = -1;     // index whose page became a private copy
  PageIndex shared_page = kNoPage;     // the page there before, owned by this entry
};

}  // namespace rigel
