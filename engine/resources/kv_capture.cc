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

/// What publish will write, from above: the step is not admitted yet.
bool KvCache::fits_capture(const SubmoduleStep& step, const StepContext& context) const {
  const std::span<const Fork> forks = std::get<KvStep>(*step.find(key())).pre_forks;
  const std::span<const Segment> segments = step.segments_of(key());
  std::int64_t num_updates = 0;
  std::int64_t num_tokens = 0;
  for (std::size_t index = 0; index < segments.size(); ++index) {
    prefetch_beyond(segments, index);
    const Segment& segment = segments[index];
    num_tokens += segment.span;
    if (segment.handle.is_padding()) {
      continue;
    }
    if (!forks.empty()) {
      if (const LabelId source = source_of(forks, segment.label); source != segment.label) {
        num_updates += config_.pages_for(stored_length(segment.handle, source) + segment.span);
        continue;
      }
    }
    const CacheStream& stream =
        streams_.at(static_cast<std::size_t>(table_row(segment.handle, segment.label)));
    if (has_room(stream, segment.span) && stream.num_published > stream.sole_index) {
      ++num_updates;  // stays in a page that the device knows: less than what it may bring
      continue;
    }
    const auto published = std::max(stream.num_published, stream.num_holes);
    // An admitted request begins behind the prefix that it was leased.
    const std::int32_t stored =
        stream.stored_length == 0
            ? static_cast<std::int32_t>(stream.lease.size()) * config_.page_size
            : stream.stored_length;
    num_updates += config_.pages_for(stored + segment.span) - published + 1;
  }
  return num_updates <= captured_updates(segments, num_tokens, *context.batch.slot_lease);
}

}  // namespace rigel
