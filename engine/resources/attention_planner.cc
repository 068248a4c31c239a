#include "engine/resources/attention_planner.h"

#include <algorithm>

namespace rigel {

void AttentionPlanner::plan(const SubmoduleStep& step, StepContext& context) {
  const auto first_prefill =
      std::ranges::find_if(step.segments, [](const Segment& segment) { return segment.span != 1; });
  const auto num_decode = static_cast<std::int64_t>(first_prefill - step.segments.begin());

  std::int64_t num_tiles = 0;
  for (auto segment = first_prefill; segment != step.segments.end(); ++segment) {
    num_tiles += (segment->span + tile_tokens_ - 1) / tile_tokens_;
  }
  const auto tiles = context.staging->column<std::int32_t>(num_tiles * 2);
  std::size_t at = 0;
  auto token = static_cast<std::int32_t>(num_decode);
  for (auto segment = first_prefill; segment != step.segments.end(); ++segment) {
    for (std::int32_t done = 0; done < segment->span; done += tile_tokens_) {
      tiles.host[at++] = token + done;
      tiles.host[at++] = std::min(tile_tokens_, segment->span - done);
    }
    token += segment->span;
  }
  context.set_plan(key(), AttentionPlan{num_decode, tiles.device.reshape({num_tiles, 2})});
}

}  // namespace rigel
