#pragma once

#include "engine/lifetime_residency.h"
#include "engine/resources/page_arena.h"
#include "engine/resources/prefix_index.h"

#include <cstdint>
#include <vector>

namespace rigel {

/// An index of a stream whose page was let go because it is too old.
inline constexpr PageIndex kNoPage{-1};

/// The keys and values of one label of one request, as the cache keeps book of them.
struct alignas(64) CacheStream {
  // What every step touches stands together, in one cache line.
  std::vector<PageIndex> pages;  // by index in the page table; may reach beyond what is stored
  std::int32_t stored_length = 0;
  std::int32_t num_published = 0;  // leading pages that the device's page table has
  std::int32_t num_holes = 0;      // leading indices without a page
  std::int32_t undo_index = -1;    // its entry among what a staged step changed
  std::uint64_t step_stamp = 0;    // the admission that saw it last
  std::uint64_t generation = 0;    // counts changes of what is stored
  /// Index of a page that was found to have this owner alone and cannot have got another since: only full pages get more.
  std::int32_t sole_index = -1;
  bool is_admitted = false;   // a step that was admitted is not committed yet
  bool is_converted = false;  // begins with a lease, and that step is not committed yet

  std::vector<PageIndex> reserved;  // for the forks and private copies of the step that is admitted
  std::vector<PageIndex>
      lease;  // a cached prefix that the first step takes over; nothing is stored before

  // The chain of this stream's full pages in the prefix index.
  PrefixIndex::Node chain_end;
  std::int32_t num_chained = 0;
  bool is_chained = true;  // false once it holds what no token ids stand for
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
  lifetime::Residency residency;  // its steps are the committed ones with a segment of it
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
