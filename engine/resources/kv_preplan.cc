// A step that was admitted and planned ahead of its turn: all that it changed is noted, so that it can be dropped.

#include "engine/resources/kv_cache.h"
#include "tensor/error.h"

#include <algorithm>
#include <ranges>

namespace rigel {

void KvCache::begin_preplan() {
  RIGEL_CHECK(!is_staging_, "a step is staged already");
  is_staging_ = true;
}

void KvCache::note_undo(std::int32_t stream_index) {
  CacheStream& stream = streams_[static_cast<std::size_t>(stream_index)];
  if (!is_staging_ || stream.undo_index >= 0) {
    return;
  }
  stream.undo_index = static_cast<std::int32_t>(undo_.size());
  undo_.push_back({.stream = stream_index,
                   .num_pages = static_cast<std::int32_t>(stream.pages.size()),
                   .num_reserved = static_cast<std::int32_t>(stream.reserved.size()),
                   .num_leased = static_cast<std::int32_t>(stream.lease.size()),
                   .stored_length = stream.stored_length,
                   .num_published = stream.num_published,
                   .num_holes = stream.num_holes,
                   .generation = stream.generation,
                   .was_admitted = stream.is_admitted,
                   .was_converted = stream.is_converted,
                   .chain_end = stream.chain_end,
                   .num_chained = stream.num_chained,
                   .was_chained = stream.is_chained});
}

StreamUndo* KvCache::undo_of(const CacheStream& stream) {
  return stream.undo_index < 0 ? nullptr : &undo_[static_cast<std::size_t>(stream.undo_index)];
}

void KvCache::promote(Epoch epoch) {
  for (const StreamUndo& undo : undo_) {
    streams_[static_cast<std::size_t>(undo.stream)].undo_index = -1;
    for (const PageIndex page : undo.old_pages) {
      drop_page(page, epoch);
    }
    drop_page(undo.shared_page, epoch);
  }
  undo_.clear();
  is_staging_ = false;
}

/// No launched step has touched what is given back here. Copies that forks enqueued may still write those pages: in stream
/// order, before any later step that gets them.
void KvCache::clear_preplan() {
  for (StreamUndo& undo : std::views::reverse(undo_)) {
    CacheStream& stream = streams_[static_cast<std::size_t>(undo.stream)];
    stream.undo_index = -1;
    stream.open_end = -1;
    if (undo.private_index >= 0) {
      PageIndex& page = stream.pages[static_cast<std::size_t>(undo.private_index)];
      drop_page(page, 0);
      page = undo.shared_page;
    }
    if (undo.is_replaced) {
      for (const PageIndex page : stream.pages) {
        drop_page(page, 0);
      }
      stream.pages.swap(undo.old_pages);
    }
    if (undo.num_leased > 0) {
      const auto end = stream.pages.begin() + undo.num_leased;
      stream.lease.assign(stream.pages.begin(), end);
      stream.pages.erase(stream.pages.begin(), end);
    }
    while (stream.pages.size() > static_cast<std::size_t>(undo.num_pages)) {
      drop_page(stream.pages.back(), 0);
      stream.pages.pop_back();
    }
    while (stream.reserved.size() > static_cast<std::size_t>(undo.num_reserved)) {
      drop_page(stream.reserved.back(), 0);
      stream.reserved.pop_back();
    }
    arena_.collect(completed_);
    // What was reserved before the step went into it; as many pages came back just now.
    RIGEL_CHECK(fill(stream.reserved, static_cast<std::size_t>(undo.num_reserved)),
                "a dropped step gave back too few pages");
    stream.stored_length = undo.stored_length;
    stream.num_published = undo.num_published;
    stream.num_holes = undo.num_holes;
    stream.generation = undo.generation;
    stream.is_admitted = undo.was_admitted;
    stream.is_converted = undo.was_converted;
    if (undo.is_replaced || undo.num_leased > 0) {
      stream.chain_end = undo.chain_end;
      stream.num_chained = undo.num_chained;
      stream.is_chained = undo.was_chained;
    }
  }
  undo_.clear();
  is_staging_ = false;
}

void KvCache::check_not_staged(RequestHandle handle) const {
  for (std::int32_t label = 0; label < config_.num_labels; ++label) {
    RIGEL_CHECK(stream_of(handle.row, label).undo_index < 0,
                "row {} is part of a staged step: drop that first", handle.row);
  }
}

}  // namespace rigel
