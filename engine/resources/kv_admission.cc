// Admission of a step to the KV cache: every page that its tokens, forks and private copies will need is taken here, so that
// plan and commit cannot fail.

#include "engine/resources/kv_cache.h"
#include "tensor/error.h"

#include <algorithm>
#include <array>
#include <tuple>

namespace rigel {

/// Streams that a step admits, until all of them are: one that is refused, or is an error, holds nothing.
struct KvCache::Admission {
  KvCache& cache;
  std::span<const Segment> segments;
  std::size_t num_seen = 0;  // in front of the one that is looked at
  bool is_complete = false;

  ~Admission() {
    if (is_complete) {
      return;
    }
    for (const Segment& segment : segments.first(num_seen)) {
      if (!segment.handle.is_padding()) {
        const auto label = static_cast<std::int32_t>(segment.label);
        cache.stream_of(segment.handle.row, label).is_admitted = false;
      }
    }
  }
};

AdmitOutcome KvCache::admit(const SubmoduleStep& step, const StepContext& /*context*/) {
  const auto& kv = std::get<KvStep>(*step.find(key()));
  const std::span<const Segment> segments = step.segments_of(key());
  Admission admission{*this, segments};
  const bool has_forks = !kv.pre_forks.empty() || !kv.post_forks.empty();
  const bool is_staging = is_staging_;
  const std::uint64_t stamp = ++stamp_;
  const CacheStreams streams = all_streams();
  std::int64_t num_tokens = 0;
  needy_.clear();
  for (std::size_t index = 0; index < segments.size(); ++index) {
    const Segment& segment = segments[index];
    num_tokens += segment.span;
    if (segment.handle.is_padding()) {
      continue;  // padding lanes write nothing
    }
    streams.prefetch_beyond(segments, index);
    admission.num_seen = index;
    // The one checked look-up of a step: row and label are known to be this cache's from here on.
    CacheStream* const found = streams.find(segment);
    if (found == nullptr) {
      std::ignore =
          this->stream(segment.handle, segment.label);  // says what is wrong, if anything is
      return {.reason = AdmitOutcome::Reason::kOffloaded,
              .handle = segment.handle,
              .label = segment.label};
    }
    CacheStream& stream = *found;
    RIGEL_CHECK(stream.step_stamp != stamp, "label {} of row {} has two segments in a step",
                static_cast<int>(segment.label), segment.handle.row);
    stream.step_stamp = stamp;
    if (is_staging) {
      note_undo(table_row(segment.handle, segment.label));
    }
    stream.is_admitted = true;
    if (has_forks || !stream.has_room(segment.span)) {
      __builtin_prefetch(&stream.pages, /*rw=*/1);
      needy_.push_back(static_cast<std::uint32_t>(index));
      if (stream.stored_length == 0) {
        convert_lease(stream);
      }
    }
  }
  admission.num_seen = segments.size();
  num_admitted_tokens_ = num_tokens;
  for (const std::uint32_t index : needy_) {
    const Segment& segment = segments[index];
    const AdmitOutcome outcome =
        has_forks ? reserve_with_forks(kv, segments, segment.handle) : reserve(segment);
    if (!outcome.ok()) {
      return outcome;
    }
  }
  admission.is_complete = true;
  return {};
}

std::int32_t KvCache::admit_turns(const SubmoduleStep& step, const StepContext& context,
                                  std::int32_t num_turns) {
  const auto& kv = std::get<KvStep>(*step.find(key()));
  if (!kv.commit || !kv.pre_forks.empty() || !kv.post_forks.empty()) {
    return 1;
  }
  const std::span<const Segment> segments = step.segments_of(key());
  std::int64_t num_places_left =
      captured_updates(segments, num_admitted_tokens_, *context.batch.slot_lease) -
      num_page_updates(segments, /*pre_forks=*/{});
  for (const Segment& segment : segments) {
    if (segment.handle.is_padding() || segment.span == 0) {
      continue;
    }
    CacheStream& stream = stream_of(segment.handle.row, static_cast<std::int32_t>(segment.label));
    const std::int32_t length =
        std::min(stream.stored_length + num_turns * segment.span, config_.max_length);
    const auto wanted = static_cast<std::size_t>(config_.pages_for(length));
    while (stream.pages.size() < wanted && num_places_left > 0 &&
           fill(stream.pages, stream.pages.size() + 1)) {
      stream.open_end = -1;  // the page table does not have the new one
      --num_places_left;
    }
    const auto held = static_cast<std::int32_t>(stream.pages.size()) * config_.page_size;
    const std::int32_t num_new = std::min(length, held) - stream.stored_length;
    num_turns = std::max(1, std::min(num_turns, num_new / segment.span));
  }
  return num_turns;
}

void KvCache::abandon(const SubmoduleStep& step) {
  for (const Segment& segment : step.segments_of(key())) {
    if (!segment.handle.is_padding()) {
      stream(segment.handle, segment.label).is_admitted = false;
    }
  }
}

bool KvCache::fill(std::vector<PageIndex>& pages, std::size_t count) {
  while (pages.size() < count) {
    const std::optional<PageIndex> page = take_page();
    if (!page) {
      return false;
    }
    pages.push_back(*page);
  }
  return true;
}

AdmitOutcome KvCache::refusal(RequestHandle handle, LabelId label, std::size_t num_short) const {
  std::size_t wanted = num_short;
  for (std::int32_t other = 0; other < config_.num_labels; ++other) {
    const CacheStream& stream = stream_of(handle.row, other);
    wanted +=
        stream.pages.size() + stream.reserved.size() - static_cast<std::size_t>(stream.num_holes);
  }
  const bool never_fits = wanted > static_cast<std::size_t>(arena_.capacity());
  return {.reason = never_fits ? AdmitOutcome::Reason::kNeverFits
                               : AdmitOutcome::Reason::kAllocationFailed,
          .pages_short = static_cast<std::int32_t>(num_short),
          .handle = handle,
          .label = label};
}

/// The next token goes into a page that others read too: a stream cut back into a full page.
bool KvCache::writes_shared_page(const CacheStream& stream) const {
  const std::int32_t index = config_.page_of(stream.stored_length);
  return stream.stored_length > index * config_.page_size && !stream.has_room(1) &&
         arena_.num_owners(stream.pages[static_cast<std::size_t>(index)]) > 1;
}

AdmitOutcome KvCache::reserve(const Segment& segment) {
  if (segment.span == 0) {
    return {};
  }
  CacheStream& stream = stream_of(segment.handle.row, static_cast<std::int32_t>(segment.label));
  const std::int32_t length = stream.stored_length + segment.span;
  RIGEL_CHECK(length <= config_.max_length, "row {} would hold {} tokens, the limit is {}",
              segment.handle.row, length, config_.max_length);
  if (writes_shared_page(stream) && !fill(stream.reserved, 1)) {
    return refusal(segment.handle, segment.label, 1);
  }
  if (length > static_cast<std::int32_t>(stream.pages.size()) * config_.page_size) {
    const auto wanted = static_cast<std::size_t>(config_.pages_for(length));
    if (!fill(stream.pages, wanted)) {
      return refusal(segment.handle, segment.label, wanted - stream.pages.size());
    }
  }
  return {};
}

/// What one request of a step with forks needs. A fork shares the source's full pages; its last page is a copy, and what it
/// grows by needs pages too.
AdmitOutcome KvCache::reserve_with_forks(const KvStep& step, std::span<const Segment> segments,
                                         RequestHandle handle) {
  CacheRow& row = this->row(handle);
  if (row.fork_stamp == stamp_) {
    return {};
  }
  row.fork_stamp = stamp_;
  std::array<std::int32_t, kMaxLabels> lengths{};
  std::array<std::int32_t, kMaxLabels> fresh{};
  std::array<bool, kMaxLabels> is_forked{};
  for (std::int32_t label = 0; label < config_.num_labels; ++label) {
    lengths[static_cast<std::size_t>(label)] = stream_of(handle.row, label).stored_length;
    note_undo(table_row(handle, LabelId(static_cast<std::uint8_t>(label))));
  }
  const auto follow = [&](const Fork& fork) {
    const auto source = static_cast<std::size_t>(fork.source);
    const auto target = static_cast<std::size_t>(fork.destination);
    RIGEL_CHECK(
        source != target && std::max(source, target) < static_cast<std::size_t>(config_.num_labels),
        "a fork of label {} into label {} in a cache of {} labels", source, target,
        config_.num_labels);
    lengths[target] = lengths[source];
    fresh[target] += lengths[target] % config_.page_size != 0 ? 1 : 0;
    is_forked[target] = true;
  };
  for (const Fork& pre : step.pre_forks) {
    follow(pre);
  }
  for (const Segment& segment : segments) {
    if (segment.handle != handle) {
      continue;
    }
    const auto label = static_cast<std::size_t>(segment.label);
    const std::int32_t length = lengths[label] + segment.span;
    if (!is_forked[label]) {
      if (const AdmitOutcome outcome = reserve(segment); !outcome.ok()) {
        return outcome;
      }
      const bool copies = segment.span > 0 && writes_shared_page(stream(handle, segment.label));
      fresh[label] += copies ? 1 : 0;
    } else {
      RIGEL_CHECK(length <= config_.max_length, "row {} would hold {} tokens, the limit is {}",
                  handle.row, length, config_.max_length);
      fresh[label] += config_.pages_for(length) - config_.pages_for(lengths[label]);
    }
    lengths[label] = step.commit ? length : lengths[label];
  }
  for (const Fork& post : step.post_forks) {
    follow(post);
  }
  for (std::int32_t label = 0; label < config_.num_labels; ++label) {
    CacheStream& stream = stream_of(handle.row, label);
    const auto wanted = static_cast<std::size_t>(fresh[static_cast<std::size_t>(label)]);
    if (!fill(stream.reserved, wanted)) {
      return refusal(handle, LabelId(static_cast<std::uint8_t>(label)),
                     wanted - stream.reserved.size());
    }
  }
  return {};
}

}  // namespace rigel
