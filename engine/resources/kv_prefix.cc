// Cached prefixes: what a new request need not compute, and what later ones will find.

#include "engine/resources/kv_cache.h"
#include "tensor/error.h"

#include <algorithm>

namespace rigel {

std::int32_t KvCache::match_prefix(RequestHandle handle, std::span<const std::int32_t> tokens) {
  CacheStream& stream = this->stream(handle, LabelId::kMain);
  if (stream.is_converted) {
    return stream.stored_length;
  }
  if (!index_ || stream.stored_length > 0 || is_offloaded(handle) || tokens.empty()) {
    return 0;
  }
  if (stream.lease.empty()) {
    const auto page_size = static_cast<std::size_t>(config_.page_size);
    // At least one token is left to compute: the next one is sampled from its logits.
    const std::size_t most =
        std::min((tokens.size() - 1) / page_size, static_cast<std::size_t>(max_pages_per_row()));
    PrefixIndex::Node end = PrefixIndex::root();
    while (stream.lease.size() < most) {
      const auto node =
          index_->find(end, tokens.subspan(stream.lease.size() * page_size, page_size));
      if (!node) {
        break;
      }
      end = *node;
      stream.open_end = -1;
      share_page(index_->page(end));
      stream.lease.push_back(index_->page(end));
    }
  }
  return static_cast<std::int32_t>(stream.lease.size()) * config_.page_size;
}

std::int32_t KvCache::cut_prefix(RequestHandle handle, std::int32_t length) {
  CacheStream& stream = this->stream(handle, LabelId::kMain);
  const auto most = static_cast<std::size_t>(std::max(length, 0) / config_.page_size);
  while (stream.lease.size() > most) {
    drop_page(stream.lease.back(), 0);
    stream.lease.pop_back();
  }
  return static_cast<std::int32_t>(stream.lease.size()) * config_.page_size;
}

/// Before the stream's first step is sized. Pages that an earlier try reserved stay behind the prefix.
void KvCache::convert_lease(CacheStream& stream) {
  if (stream.lease.empty()) {
    return;
  }
  stream.pages.insert(stream.pages.begin(), stream.lease.begin(), stream.lease.end());
  stream.stored_length = static_cast<std::int32_t>(stream.lease.size()) * config_.page_size;
  stream.num_published = 0;
  stream.open_end = -1;
  stream.is_converted = true;
  ++stream.generation;
  stream.lease.clear();
}

void KvCache::extend_prefix(RequestHandle handle, std::span<const std::int32_t> tokens) {
  CacheStream& stream = this->stream(handle, LabelId::kMain);
  if (!index_ || !stream.is_chained || is_offloaded(handle)) {
    return;
  }
  std::int32_t num_full =
      std::min(stream.stored_length, static_cast<std::int32_t>(tokens.size())) / config_.page_size;
  if (config_.retention.max_tokens > 0) {
    num_full = std::min(num_full, config_.retention.protected_tokens / config_.page_size);
  }
  if (stream.num_chained >= num_full) {
    return;
  }
  if (!index_->is_valid(stream.chain_end)) {
    // The chain went on behind another writer's pages, and those are gone: begin anew with this stream's own.
    stream.chain_end = PrefixIndex::root();
    stream.num_chained = 0;
  }
  const auto page_size = static_cast<std::size_t>(config_.page_size);
  for (; stream.num_chained < num_full; ++stream.num_chained) {
    const auto index = static_cast<std::size_t>(stream.num_chained);
    const std::span<const std::int32_t> page_tokens = tokens.subspan(index * page_size, page_size);
    if (const auto known = index_->find(stream.chain_end, page_tokens)) {
      stream.chain_end = *known;
      continue;
    }
    const PageIndex page = stream.pages[index];
    arena_.retain(page);
    stream.chain_end = index_->insert(stream.chain_end, page_tokens, page);
  }
}

void KvCache::drop_prefix(RequestHandle handle) {
  stream(handle, LabelId::kMain).is_chained = false;
}

}  // namespace rigel
