// What a step does to the KV cache: forks, private copies, the differences of the page table and the tokens' places.

#include "engine/resources/kv_cache.h"
#include "tensor/error.h"

#include <algorithm>

namespace rigel {

void KvCache::plan(const SubmoduleStep& step, StepContext& context) {
  const auto& kv = std::get<KvStep>(*step.find(key()));
  const std::span<const Segment> segments = step.segments_of(key());
  check_combined(kv, segments);
  for (const Fork& fork : kv.pre_forks) {
    fork_all({&fork, 1}, segments, context.epoch);
    enqueue_copies(context.stream());
  }
  KvPlan plan;
  publish(segments, plan, context);
  enqueue_copies(context.stream());
  plan.starts = starts_;
  context.set_plan(key(), plan);
}

/// One column of tokens, label after label: the same requests under each, so that a lane of one label knows its partner.
void KvCache::check_combined(const KvStep& step, std::span<const Segment> segments) const {
  if (step.combined_labels.empty()) {
    return;
  }
  const std::size_t num_labels = step.combined_labels.size();
  const std::size_t num_lanes = segments.size() / num_labels;
  for (std::size_t index = 0; index < segments.size(); ++index) {
    const LabelId label =
        step.combined_labels[std::min(index / std::max<std::size_t>(num_lanes, 1), num_labels - 1)];
    RIGEL_CHECK(segments[index].label == label &&
                    segments[index].handle ==
                        segments[index % std::max<std::size_t>(num_lanes, 1)].handle &&
                    segments.size() == num_lanes * num_labels,
                "combined labels need a segment of each label for every request, label after "
                "label: segment {} of {} is label {} of row {}, expected label {}",
                index, segments.size(), static_cast<int>(segments[index].label),
                segments[index].handle.row, static_cast<int>(label));
  }
}

void KvCache::fork_all(std::span<const Fork> forks, std::span<const Segment> segments,
                       Epoch epoch) {
  ++stamp_;
  for (const Segment& segment : segments) {
    if (segment.handle.is_padding() || row(segment.handle).fork_stamp == stamp_) {
      continue;
    }
    row(segment.handle).fork_stamp = stamp_;
    for (const Fork& one : forks) {
      fork(segment.handle, one, epoch);
    }
  }
}

void KvCache::fork(RequestHandle handle, const Fork& fork, Epoch epoch) {
  const CacheStream& source = stream(handle, fork.source);
  CacheStream& target = stream(handle, fork.destination);
  StreamUndo* const undo = undo_of(target);
  if (undo != nullptr && !undo->is_replaced) {
    undo->is_replaced = true;
    undo->old_pages.swap(target.pages);
    target.pages.reserve(static_cast<std::size_t>(max_pages_per_row()));
  }
  for (const PageIndex page : target.pages) {
    drop_page(page, epoch);
  }
  target.pages.clear();
  const std::int32_t num_full = config_.page_of(source.stored_length);
  for (std::int32_t index = 0; index < num_full; ++index) {
    const PageIndex page = source.pages[static_cast<std::size_t>(index)];
    share_page(page);
    target.pages.push_back(page);
  }
  if (source.stored_length % config_.page_size != 0) {
    const PageIndex last = take_reserved(target);
    copies_.push_back(
        {static_cast<std::int32_t>(last),
         static_cast<std::int32_t>(source.pages[static_cast<std::size_t>(num_full)])});
    target.pages.push_back(last);
  }
  target.stored_length = source.stored_length;
  target.num_published = 0;
  target.open_end = -1;
  target.num_holes = source.num_holes;
  target.chain_end = PrefixIndex::root();
  target.num_chained = 0;
  target.is_chained = false;
  ++target.generation;
}

PageIndex KvCache::take_reserved(CacheStream& stream) {
  RIGEL_CHECK(!stream.reserved.empty(), "a step was planned that was not admitted");
  const PageIndex page = stream.reserved.back();
  stream.reserved.pop_back();
  return page;
}

void KvCache::make_private(CacheStream& stream, Epoch epoch) {
  if (!writes_shared_page(stream)) {
    return;
  }
  const std::int32_t index = config_.page_of(stream.stored_length);
  PageIndex& page = stream.pages[static_cast<std::size_t>(index)];
  const PageIndex shared = page;
  page = take_reserved(stream);
  stream.num_published = std::min(stream.num_published, index);
  copies_.push_back({static_cast<std::int32_t>(page), static_cast<std::int32_t>(shared)});
  if (StreamUndo* const undo = undo_of(stream); undo != nullptr) {
    undo->private_index = index;
    undo->shared_page = shared;
  } else {
    drop_page(shared, epoch);
  }
}

namespace {

/// The places of the leading segments that are decode lanes amid their pages. Returns how many those are.
std::size_t place_open_lanes(CacheStreams books, std::span<const Segment> segments,
                             std::int32_t* streams, std::int32_t* indices) {
  std::size_t lane = 0;
  for (; lane < segments.size(); ++lane) {
    const Segment& segment = segments[lane];
    if (segment.span != 1 || segment.handle.is_padding()) {
      break;
    }
    const std::int32_t table_row = books.table_row(segment);
    const CacheStream& stream = books[table_row];
    if (!stream.has_room(1)) {
      break;
    }
    streams[lane] = table_row;
    indices[lane] = stream.stored_length;
  }
  return lane;
}

}  // namespace

void KvCache::publish(std::span<const Segment> segments, KvPlan& plan, StepContext& context) {
  starts_.clear();
  grown_.clear();
  std::int64_t num_tokens = 0;
  for (const Segment& segment : segments) {
    num_tokens += segment.span;
  }
  const auto streams = context.staging->column<std::int32_t>(num_tokens);
  const auto indices = context.staging->column<std::int32_t>(num_tokens);
  const CacheStreams books = all_streams();
  std::int64_t num_updates = 0;
  std::size_t token = 0;
  for (std::size_t index = 0; index < segments.size(); ++index) {
    const std::size_t num_open = place_open_lanes(
        books, segments.subspan(index), streams.host.data() + token, indices.host.data() + token);
    token += num_open;
    index += num_open;
    if (index == segments.size()) {
      break;
    }
    const Segment& segment = segments[index];
    if (segment.handle.is_padding()) {
      for (std::int32_t offset = 0; offset < segment.span; ++offset, ++token) {
        streams.host[token] = -1;
        indices.host[token] = -1;
      }
      continue;
    }
    const std::int32_t table_row = books.table_row(segment);
    CacheStream& stream = books[table_row];
    if (segment.span > 0) {
      make_private(stream, context.epoch);
    }
    while (static_cast<std::int32_t>(stream.pages.size()) * config_.page_size <
           stream.stored_length + segment.span) {  // a fork's: now it is known what it grows behind
      stream.pages.push_back(take_reserved(stream));
    }
    if (stream.is_converted) {
      starts_.push_back({segment.handle, segment.label, stream.stored_length});
    }
    if (const std::int32_t num_new = num_unpublished(stream); num_new > 0) {
      num_updates += num_new;
      grown_.push_back(table_row);
    }
    if (segment.span > 0) {
      stream.open_end = std::min(static_cast<std::int32_t>(stream.pages.size()) * config_.page_size,
                                 config_.max_length);
    }
    for (std::int32_t offset = 0; offset < segment.span; ++offset, ++token) {
      streams.host[token] = table_row;
      indices.host[token] = stream.stored_length + offset;
    }
  }
  const std::int64_t num_places =
      context.batch.slot_lease != nullptr
          ? captured_updates(segments, num_tokens, *context.batch.slot_lease)
          : num_updates;
  RIGEL_CHECK(num_updates <= num_places, "{} page updates do not fit a captured step's {}",
              num_updates, num_places);
  plan.page_updates = write_updates(num_places, context);
  plan.token_streams = streams.device;
  plan.token_indices = indices.device;
  plan.host_token_indices = indices.host;
}

/// Pages of a stream that the device's page table does not have yet.
std::int32_t KvCache::num_unpublished(const CacheStream& stream) {
  return static_cast<std::int32_t>(stream.pages.size()) -
         std::max(stream.num_published, stream.num_holes);
}

/// The differences of the page table: in a steady step, one row in page_size has one.
ConstDeviceView KvCache::write_updates(std::int64_t num_places, StepContext& context) {
  const auto updates = context.staging->column<std::int32_t>(num_places * 3);
  std::size_t at = 0;
  for (const std::int32_t table_row : grown_) {
    CacheStream& stream = streams_[static_cast<std::size_t>(table_row)];
    auto published = std::max(stream.num_published, stream.num_holes);
    for (; published < static_cast<std::int32_t>(stream.pages.size()); ++published) {
      updates.host[at++] = table_row;
      updates.host[at++] = published;
      updates.host[at++] =
          static_cast<std::int32_t>(stream.pages[static_cast<std::size_t>(published)]);
    }
    stream.num_published = published;
  }
  std::fill(updates.host.begin() + static_cast<std::ptrdiff_t>(at), updates.host.end(), -1);
  return updates.device.reshape({num_places, 3});
}

void KvCache::enqueue_copies(StreamRef stream) {
  if (!copies_.empty()) {
    kernels::copy_pages(stream, device_blocks(), device_blocks(), copies_);
    copies_.clear();
  }
}

void KvCache::commit(const SubmoduleStep& step, const StepContext& context) {
  const auto& kv = std::get<KvStep>(*step.find(key()));
  const std::span<const Segment> segments = step.segments_of(key());
  const Epoch epoch = context.epoch;
  const bool commits = kv.commit;
  const bool has_retention = config_.retention.max_tokens > 0;
  const CacheStreams streams = all_streams();
  for (const Segment& segment : segments) {
    if (segment.handle.is_padding()) {
      continue;
    }
    CacheStream& stream = streams[streams.table_row(segment)];
    stream.is_admitted = false;
    stream.is_converted = false;
    stream.last_step = epoch;
    if (commits && segment.span > 0) {
      stream.stored_length += segment.span;
      ++stream.generation;
      if (has_retention) {
        apply_retention(stream, epoch);
      }
    }
  }
  for (const Fork& fork : kv.post_forks) {
    fork_all({&fork, 1}, segments, context.epoch);
    enqueue_copies(context.stream());
  }
}

void KvCache::apply_retention(CacheStream& stream, Epoch epoch) {
  const RetentionPolicy& policy = config_.retention;
  if (policy.protected_tokens == 0) {
    const std::int32_t num_old =
        std::max(0, stream.stored_length - policy.max_tokens) / config_.page_size;
    for (; stream.num_holes < num_old; ++stream.num_holes) {
      PageIndex& page = stream.pages[static_cast<std::size_t>(stream.num_holes)];
      drop_page(page, epoch);
      page = kNoPage;
    }
    return;
  }
  const std::int32_t first = config_.pages_for(policy.protected_tokens);
  const std::int32_t num_old =
      (stream.stored_length - first * config_.page_size - policy.max_tokens) / config_.page_size;
  if (num_old <= 0) {
    return;
  }
  const auto begin = stream.pages.begin() + first;
  for (auto page = begin; page != begin + num_old; ++page) {
    drop_page(*page, epoch);
  }
  stream.pages.erase(begin, begin + num_old);
  stream.stored_length -= num_old * config_.page_size;
  stream.open_end = -1;
  stream.num_published = std::min(stream.num_published, first);
}

}  // namespace rigel
