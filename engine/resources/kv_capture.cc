// What a captured step can take along to the page table, whose places there are fixed.

#include "engine/resources/kv_cache.h"

#include <algorithm>
#include <ranges>

namespace rigel {

namespace {

/// The stream that `label` is a copy of when the step's tokens come to it: itself where no fork replaces it.
LabelId source_of(std::span<const Fork> forks, LabelId label) {
  for (const Fork& fork : std::views::reverse(forks)) {
    label = fork.destination == label ? fork.source : label;
  }
  return label;
}

}  // namespace

/// The pages that the tokens of a padded step can need, and for each segment a page that it begins in or that became its own.
/// A packed step takes prompts, whose cached prefixes come to the page table with their first tokens.
std::int64_t KvCache::captured_updates(std::span<const Segment> segments, std::int64_t num_tokens,
                                       const SlotLease& lease) const {
  constexpr std::int64_t kPrefixPages = 512;
  return num_tokens / config_.page_size + 2 * static_cast<std::int64_t>(segments.size()) +
         (is_packed(&lease) ? kPrefixPages : 0);
}

/// What publish will write of the step that was admitted last, private copies included. With forks every segment is looked at.
std::int64_t KvCache::num_page_updates(std::span<const Segment> segments,
                                       std::span<const Fork> pre_forks) const {
  std::int64_t num_updates = 0;
  for (const std::uint32_t index : needy_) {
    const Segment& segment = segments[index];
    if (const LabelId source = source_of(pre_forks, segment.label); source != segment.label) {
      num_updates += config_.pages_for(stored_length(segment.handle, source) + segment.span);
      continue;
    }
    const CacheStream& stream =
        stream_of(segment.handle.row, static_cast<std::int32_t>(segment.label));
    num_updates += num_unpublished(stream) + (writes_shared_page(stream) ? 1 : 0);
  }
  return num_updates;
}

bool KvCache::fits_capture(const SubmoduleStep& step, const StepContext& context) const {
  const std::span<const Segment> segments = step.segments_of(key());
  return num_page_updates(segments, std::get<KvStep>(*step.find(key())).pre_forks) <=
         captured_updates(segments, num_admitted_tokens_, *context.batch.slot_lease);
}

}  // namespace rigel
