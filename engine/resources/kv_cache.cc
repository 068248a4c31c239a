#include "engine/resources/kv_cache.h"

#include "tensor/error.h"

#include <algorithm>
#include <array>
#include <bit>

namespace rigel {

KvCache::KvCache(ResourceKey key, Device& device, const KvCacheConfig& config)
    : Resource(key),
      config_(config),
      arena_(config.num_pages),
      rows_(static_cast<std::size_t>(config.num_rows)),
      streams_(static_cast<std::size_t>(config.num_rows) *
               static_cast<std::size_t>(config.num_labels)),
      pool_(device, config.page_bytes() * config.num_pages),
      page_table_(device, static_cast<std::int64_t>(streams_.size()) *
                              config.pages_for(config.max_length) * 4) {
  RIGEL_CHECK(std::has_single_bit(static_cast<std::uint32_t>(config.page_size)),
              "page_size must be a power of two, got {}", config.page_size);
  RIGEL_CHECK(config.num_labels >= 1 && config.num_labels <= kMaxLabels,
              "num_labels must be 1 to {}, got {}", kMaxLabels, config.num_labels);
  RIGEL_CHECK(config.retention.protected_tokens == 0 || config.retention.max_tokens > 0,
              "retention.protected_tokens is {} but max_tokens keeps everything",
              config.retention.protected_tokens);
  pool_view_ = pool_.view(config.dtype, {config.num_layers, config.num_pages, 2,
                                         config.num_kv_heads, config.page_size, config.head_dim});
  page_table_view_ = page_table_.view(Dtype::kI32, {static_cast<std::int64_t>(streams_.size()),
                                                    config.pages_for(config.max_length)});
  for (CacheStream& stream : streams_) {
    stream.pages.reserve(static_cast<std::size_t>(max_pages_per_row()));
  }
  starts_.reserve(streams_.size());
  grown_.reserve(streams_.size());
  undo_.reserve(streams_.size());
  if (config.has_prefix_cache()) {
    index_.emplace(config.num_pages, config.page_size, config.fingerprint);
  }
  if (config.num_host_pages > 0) {
    host_arena_.emplace(config.num_host_pages + 1);
    host_pool_ = PinnedBuffer(device, config.page_bytes() * config.num_host_pages);
  }
}

void KvCache::ingest_request(const RequestInfo& info) {
  CacheRow& row = rows_.at(static_cast<std::size_t>(info.handle.row));
  if (row.open && row.handle == info.handle) {
    return;
  }
  RIGEL_CHECK(!row.open, "row {} is still open", info.handle.row);
  row.handle = info.handle;
  row.open = true;
  row.residency = {};
  for (std::int32_t label = 0; label < config_.num_labels; ++label) {
    stream_of(info.handle.row, label).last_step = 0;
  }
  let_in(row);
}

void KvCache::remove_request(RequestHandle handle, Epoch last_touch) {
  restart_request(handle, last_touch);
  CacheRow& row = this->row(handle);
  keep_out(row);
  row.open = false;
}

/// From now on steps of the row's owner may come.
void KvCache::let_in(const CacheRow& row) {
  for (std::int32_t label = 0; label < config_.num_labels; ++label) {
    stream_of(row.handle.row, label).user = row.handle;
  }
}

void KvCache::keep_out(const CacheRow& row) {
  for (std::int32_t label = 0; label < config_.num_labels; ++label) {
    stream_of(row.handle.row, label).user = {};
  }
}

void KvCache::restart_request(RequestHandle handle, Epoch last_touch) {
  CacheRow& row = this->row(handle);
  check_not_staged(handle);
  const Epoch last_use = row.residency.empty(last_touch);
  for (std::int32_t label = 0; label < config_.num_labels; ++label) {
    empty_stream(stream_of(handle.row, label), last_use);
  }
  empty_host_pages(row, last_use);
  let_in(row);
}

/// Pages are let go from the end: in the prefix index a page below another is then free first.
void KvCache::empty_stream(CacheStream& stream, Epoch last_touch) {
  for (std::vector<PageIndex>* list : {&stream.reserved, &stream.pages, &stream.lease}) {
    while (!list->empty()) {
      drop_page(list->back(), last_touch);
      list->pop_back();
    }
  }
  stream.stored_length = 0;
  stream.num_published = 0;
  stream.num_holes = 0;
  stream.open_end = -1;
  stream.is_admitted = false;
  stream.is_converted = false;
  stream.chain_end = PrefixIndex::root();
  stream.num_chained = 0;
  stream.is_chained = true;
  ++stream.generation;
}

void KvCache::empty_host_pages(CacheRow& row, Epoch last_touch) {
  for (const CacheRow::HostPage& host : row.host_pages) {
    if (host.shared < 0) {
      host_arena_->release(host.page, last_touch);
    }
  }
  row.host_pages.clear();
}

void KvCache::collect(Epoch completed) {
  completed_ = std::max(completed_, completed);
  arena_.collect(completed);
  if (host_arena_) {
    host_arena_->collect(completed);
  }
}

void KvCache::truncate_to(RequestHandle handle, LabelId label, std::int32_t length,
                          Epoch last_touch) {
  CacheStream& stream = this->stream(handle, label);
  check_not_staged(handle);
  RIGEL_CHECK(!is_offloaded(handle) && !stream.is_admitted, "row {} cannot be truncated: it is {}",
              handle.row, stream.is_admitted ? "admitted to a step" : "on the host");
  RIGEL_CHECK(length >= stream.num_holes * config_.page_size && length <= stream.stored_length,
              "length {} of row {} is not among its tokens {} to {}", length, handle.row,
              stream.num_holes * config_.page_size, stream.stored_length);
  const auto num_kept = static_cast<std::size_t>(config_.pages_for(length));
  while (stream.pages.size() > num_kept) {
    drop_page(stream.pages.back(), row(handle).residency.last_use(last_touch));
    stream.pages.pop_back();
  }
  stream.num_published = std::min(stream.num_published, static_cast<std::int32_t>(num_kept));
  stream.stored_length = length;
  stream.open_end = -1;  // the last page left may be one that was full, and shared
  stream.chain_end = PrefixIndex::root();
  stream.num_chained = 0;
  ++stream.generation;
}

void KvCache::truncate_request(const SubmoduleStep& step, const RequestInfo& accepted,
                               Epoch last_touch) {
  const auto& kv = std::get<KvStep>(*step.find(key()));
  bool is_there = false;
  for (const Segment& segment : step.segments_of(key())) {
    if (segment.handle != accepted.handle) {
      continue;
    }
    is_there = true;
    const bool is_replaced =
        std::ranges::find(kv.post_forks, segment.label, &Fork::destination) != kv.post_forks.end();
    if (kv.commit && !is_replaced) {
      truncate_to(accepted.handle, segment.label,
                  stored_length(accepted.handle, segment.label) - segment.span, last_touch);
    }
  }
  for (const Fork& fork : kv.post_forks) {
    if (is_there) {
      truncate_to(accepted.handle, fork.destination, stored_length(accepted.handle, fork.source),
                  last_touch);
    }
  }
}

std::int32_t KvCache::stored_length(RequestHandle handle, LabelId label) const {
  return stream(handle, label).stored_length;
}

std::int32_t KvCache::num_pages(RequestHandle handle, LabelId label) const {
  const CacheStream& stream = this->stream(handle, label);
  return static_cast<std::int32_t>(stream.pages.size()) - stream.num_holes;
}

std::span<const PageIndex> KvCache::pages(RequestHandle handle, LabelId label) const {
  return stream(handle, label).pages;
}

std::uint64_t KvCache::generation(RequestHandle handle, LabelId label) const {
  return stream(handle, label).generation;
}

DeviceView KvCache::layer(std::int32_t index) const {
  return pool_view_.select(0, index);
}

DeviceView KvCache::device_blocks() const {
  const std::array<std::int64_t, 3> strides{config_.block_bytes(),
                                            config_.block_bytes() * config_.num_pages, 1};
  return {pool_.raw(),
          Dtype::kU8,
          {config_.num_pages, config_.num_layers, config_.block_bytes()},
          strides};
}

}  // namespace rigel
