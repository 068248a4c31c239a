// Requests that wait on the host. When one may go and when its pages are free, on both sides, lifetime::Residency says; the
// copies run on the steps' stream, as it demands.

#include "engine/resources/kv_cache.h"
#include "tensor/error.h"

#include <algorithm>
#include <array>

namespace rigel {

bool KvCache::is_offloaded(RequestHandle handle) const {
  return row(handle).residency.is_on_host();
}

bool KvCache::is_admitted(const CacheRow& row) const {
  bool is_admitted = false;
  for (std::int32_t label = 0; label < config_.num_labels; ++label) {
    is_admitted = is_admitted || stream_of(row.handle.row, label).is_admitted;
  }
  return is_admitted;
}

/// Where the row's pages are, with the steps that its streams have had.
lifetime::Residency KvCache::residency_of(const CacheRow& row) const {
  Epoch last_step = 0;
  for (std::int32_t label = 0; label < config_.num_labels; ++label) {
    last_step = std::max(last_step, stream_of(row.handle.row, label).last_step);
  }
  lifetime::Residency residency = row.residency;
  residency.note_step(last_step);
  return residency;
}

std::int32_t KvCache::num_host_pages(const CacheRow& row) {
  return static_cast<std::int32_t>(std::ranges::count_if(
      row.host_pages, [](const CacheRow::HostPage& host) { return host.shared < 0; }));
}

/// Forks share pages at the same index.
std::int32_t KvCache::num_labels_with(const CacheRow& row, PageIndex page, std::size_t index,
                                      std::int32_t end) const {
  std::int32_t count = 0;
  for (std::int32_t label = 0; label < end; ++label) {
    const std::vector<PageIndex>& pages = stream_of(row.handle.row, label).pages;
    count += index < pages.size() && pages[index] == page ? 1 : 0;
  }
  return count;
}

std::int32_t KvCache::reclaimable(RequestHandle handle) const {
  const CacheRow& row = this->row(handle);
  if (!host_arena_ || is_admitted(row) || !residency_of(row).can_leave(completed_)) {
    return 0;
  }
  std::int32_t num_freed = 0;
  std::int32_t num_stored = 0;
  for (std::int32_t label = 0; label < config_.num_labels; ++label) {
    const CacheStream& stream = stream_of(handle.row, label);
    const auto num_used = static_cast<std::size_t>(config_.pages_for(stream.stored_length));
    for (std::size_t index = 0; index < stream.pages.size(); ++index) {
      const PageIndex page = stream.pages[index];
      if (page == kNoPage || num_labels_with(row, page, index, label) > 0) {
        continue;
      }
      const bool is_indexed = index_ && index_->contains(page);
      const std::int32_t own = num_labels_with(row, page, index, config_.num_labels);
      num_freed += arena_.num_owners(page) == own + (is_indexed ? 1 : 0) ? 1 : 0;
      num_stored += index < num_used ? 1 : 0;
    }
  }
  return num_stored > 0 && num_stored <= host_arena_->num_free() ? num_freed : 0;
}

bool KvCache::can_reload(RequestHandle handle) const {
  const CacheRow& row = this->row(handle);
  return !row.residency.is_on_host() ||
         num_host_pages(row) <= arena_.num_free() + (index_ ? index_->num_evictable() : 0);
}

bool KvCache::offload(RequestHandle handle, StreamRef stream, Epoch last_touch) {
  if (reclaimable(handle) == 0) {
    return false;
  }
  CacheRow& row = this->row(handle);
  row.host_generations = 0;
  for (std::int32_t label = 0; label < config_.num_labels; ++label) {
    const CacheStream& from = stream_of(handle.row, label);
    row.host_generations += from.generation;
    for (std::int32_t index = from.num_holes; index < config_.pages_for(from.stored_length);
         ++index) {
      const PageIndex page = from.pages[static_cast<std::size_t>(index)];
      const auto twin = std::ranges::find_if(row.host_pages, [&](const CacheRow::HostPage& host) {
        return host.index == index &&
               stream_of(handle.row, host.stream).pages[static_cast<std::size_t>(index)] == page;
      });
      if (label > 0 && twin != row.host_pages.end()) {
        row.host_pages.push_back(
            {twin->page, label, index,
             static_cast<std::int32_t>(std::distance(row.host_pages.begin(), twin))});
        continue;
      }
      const PageIndex host = host_arena_->acquire().value();
      row.host_pages.push_back({host, label, index, -1});
      copies_.push_back({static_cast<std::int32_t>(host) - 1, static_cast<std::int32_t>(page)});
    }
  }
  kernels::copy_pages(stream, host_blocks(), device_blocks(), copies_);
  copies_.clear();
  const Epoch last_use = row.residency.leave(last_touch);
  for (std::int32_t label = 0; label < config_.num_labels; ++label) {
    CacheStream& from = stream_of(handle.row, label);
    for (std::vector<PageIndex>* list : {&from.reserved, &from.pages}) {
      while (!list->empty()) {
        drop_page(list->back(), last_use);
        list->pop_back();
      }
    }
    from.num_published = 0;
    from.open_end = -1;
  }
  keep_out(row);
  return true;
}

bool KvCache::reload(RequestHandle handle, StreamRef stream, Epoch last_touch) {
  CacheRow& row = this->row(handle);
  if (!row.residency.is_on_host()) {
    return true;
  }
  std::vector<PageIndex> pages;
  if (!fill(pages, static_cast<std::size_t>(num_host_pages(row)))) {
    for (const PageIndex page : pages) {
      drop_page(page, 0);
    }
    arena_.collect(completed_);
    return false;
  }
  std::uint64_t generations = 0;
  for (std::int32_t label = 0; label < config_.num_labels; ++label) {
    CacheStream& into = stream_of(handle.row, label);
    generations += into.generation;
    into.pages.assign(static_cast<std::size_t>(into.num_holes), kNoPage);
  }
  RIGEL_CHECK(generations == row.host_generations, "row {} changed while it was on the host",
              handle.row);
  std::size_t next = 0;
  for (const CacheRow::HostPage& host : row.host_pages) {
    CacheStream& into = stream_of(handle.row, host.stream);
    if (host.shared >= 0) {
      const CacheRow::HostPage& twin = row.host_pages[static_cast<std::size_t>(host.shared)];
      const PageIndex page =
          stream_of(handle.row, twin.stream).pages[static_cast<std::size_t>(twin.index)];
      share_page(page);
      into.pages.push_back(page);
      continue;
    }
    copies_.push_back(
        {static_cast<std::int32_t>(pages[next]), static_cast<std::int32_t>(host.page) - 1});
    into.pages.push_back(pages[next++]);
  }
  kernels::copy_pages(stream, device_blocks(), host_blocks(), copies_);
  copies_.clear();
  empty_host_pages(row, row.residency.come_back(last_touch));
  let_in(row);
  return true;
}

/// The host pool is (page, layer, bytes): a request's pages lie together.
DeviceView KvCache::host_blocks() const {
  return host_pool_.device_view(
      Dtype::kU8, {config_.num_host_pages, config_.num_layers, config_.block_bytes()});
}

}  // namespace rigel
