#include "engine/resources/kv_cache.h"

#include "tensor/error.h"

namespace rigel {

KvCache::KvCache(ResourceKey key, Device& device, const KvCacheConfig& config)
    : Resource(key),
      config_(config),
      arena_(config.num_pages),
      streams_(static_cast<std::size_t>(config.num_rows)),
      pool_(device, config.page_bytes() * config.num_pages),
      page_table_(device, std::int64_t{config.num_rows} * config.pages_for(config.max_length) * 4) {
  pool_view_ = pool_.view(config.dtype, {config.num_layers, config.num_pages, 2,
                                         config.num_kv_heads, config.page_size, config.head_dim});
  page_table_view_ =
      page_table_.view(Dtype::kI32, {config.num_rows, config.pages_for(config.max_length)});
  for (Stream& row : streams_) {
    row.pages.reserve(static_cast<std::size_t>(max_pages_per_row()));
  }
}

KvCache::Stream& KvCache::stream(RequestHandle handle) {
  return const_cast<Stream&>(std::as_const(*this).stream(handle));
}

const KvCache::Stream& KvCache::stream(RequestHandle handle) const {
  RIGEL_CHECK(handle.row >= 0 && handle.row < config_.num_rows, "no row {} in a cache of {} rows",
              handle.row, config_.num_rows);
  const Stream& row = streams_[static_cast<std::size_t>(handle.row)];
  RIGEL_CHECK(row.open && row.handle == handle, "row {} belongs to another request", handle.row);
  return row;
}

std::span<const Segment> KvCache::segments(const SubmoduleStep& step) const {
  const auto& own = std::get<KvStep>(*step.find(key())).segments;
  return own.empty() ? std::span<const Segment>(step.segments) : std::span<const Segment>(own);
}

void KvCache::ingest_request(const RequestInfo& info) {
  Stream& row = streams_.at(static_cast<std::size_t>(info.handle.row));
  if (row.open && row.handle == info.handle) {
    return;
  }
  RIGEL_CHECK(!row.open, "row {} is still open", info.handle.row);
  row.handle = info.handle;
  row.open = true;
  row.stored_length = 0;
  row.num_published = 0;
}

void KvCache::remove_request(RequestHandle handle, Epoch last_touch) {
  restart_request(handle, last_touch);
  stream(handle).open = false;
}

void KvCache::restart_request(RequestHandle handle, Epoch last_touch) {
  Stream& row = stream(handle);
  for (const PageIndex page : row.pages) {
    arena_.release(page, last_touch);
  }
  row.pages.clear();
  row.stored_length = 0;
  row.num_published = 0;
}

AdmitOutcome KvCache::admit(const SubmoduleStep& step, const StepContext& /*context*/) {
  for (const Segment& segment : segments(step)) {
    if (segment.handle.is_padding()) {
      continue;  // padding lanes write nothing
    }
    Stream& row = stream(segment.handle);
    const std::int32_t length = row.stored_length + segment.span;
    RIGEL_CHECK(length <= config_.max_length, "row {} would hold {} tokens, the limit is {}",
                segment.handle.row, length, config_.max_length);
    const auto wanted = static_cast<std::size_t>(config_.pages_for(length));
    while (row.pages.size() < wanted) {
      const std::optional<PageIndex> page = arena_.acquire();
      if (!page) {
        return {AdmitOutcome::Reason::kAllocationFailed,
                static_cast<std::int32_t>(wanted - row.pages.size()), segment.handle};
      }
      row.pages.push_back(*page);
    }
  }
  return {};
}

void KvCache::plan(const SubmoduleStep& step, StepContext& context) {
  std::int64_t num_updates = 0;
  for (const Segment& segment : segments(step)) {
    if (!segment.handle.is_padding()) {
      const Stream& row = stream(segment.handle);
      num_updates += static_cast<std::int64_t>(row.pages.size()) - row.num_published;
    }
  }
  const auto updates = context.staging->column<std::int32_t>(num_updates * 3);
  std::size_t at = 0;
  for (const Segment& segment : segments(step)) {
    if (segment.handle.is_padding()) {
      continue;
    }
    Stream& row = stream(segment.handle);
    for (; row.num_published < static_cast<std::int32_t>(row.pages.size()); ++row.num_published) {
      updates.host[at++] = segment.handle.row;
      updates.host[at++] = row.num_published;
      updates.host[at++] =
          static_cast<std::int32_t>(row.pages[static_cast<std::size_t>(row.num_published)]);
    }
  }
  context.set_plan(key(), KvPlan{updates.device.reshape({num_updates, 3})});
}

void KvCache::commit(const SubmoduleStep& step, const StepContext& /*context*/) {
  if (!std::get<KvStep>(*step.find(key())).commit) {
    return;
  }
  for (const Segment& segment : segments(step)) {
    if (!segment.handle.is_padding()) {
      stream(segment.handle).stored_length += segment.span;
    }
  }
}

std::int32_t KvCache::stored_length(RequestHandle handle) const {
  return stream(handle).stored_length;
}

std::int32_t KvCache::num_pages(RequestHandle handle) const {
  return static_cast<std::int32_t>(stream(handle).pages.size());
}

DeviceView KvCache::layer(std::int32_t index) const {
  return pool_view_.select(0, index);
}

}  // namespace rigel
