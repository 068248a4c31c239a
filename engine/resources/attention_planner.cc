#include "engine/resources/attention_planner.h"

#include "tensor/error.h"

#include <algorithm>

namespace rigel {

void AttentionPlanner::plan(const SubmoduleStep& step, StepContext& context) {
  const std::span<const Segment> segments = step.segments_of(key());
  AttentionPlan plan = is_packed(context.batch.slot_lease) ? plan_packed(segments, context)
                                                           : plan_segments(segments, context);
  if (const ResourceStep* const own = step.find(key());
      own != nullptr && !std::get<AttentionStep>(*own).causal) {
    plan_last_keys(segments, plan, context);
  }
  context.set_plan(key(), plan);
}

AttentionPlan AttentionPlanner::plan_segments(std::span<const Segment> segments,
                                              StepContext& context) const {
  const auto first_prefill =
      std::ranges::find_if(segments, [](const Segment& segment) { return segment.span != 1; });

  AttentionPlan plan;
  plan.num_decode_tokens = first_prefill - segments.begin();
  std::int64_t num_tiles = 0;
  for (auto segment = first_prefill; segment != segments.end(); ++segment) {
    num_tiles += (segment->span + tile_tokens_ - 1) / tile_tokens_;
  }
  const auto tiles = context.staging->column<std::int32_t>(num_tiles * 2);
  std::size_t at = 0;
  auto token = static_cast<std::int32_t>(plan.num_decode_tokens);
  for (auto segment = first_prefill; segment != segments.end(); ++segment) {
    for (std::int32_t done = 0; done < segment->span; done += tile_tokens_) {
      tiles.host[at++] = token + done;
      tiles.host[at++] = std::min(tile_tokens_, segment->span - done);
    }
    token += segment->span;
  }
  plan.prefill_tiles = tiles.device.reshape({num_tiles, 2});
  plan_labels(segments, plan);
  return plan;
}

/// Tiles end with their segment, so each adds at most one to those that all tokens together fill.
AttentionPlan AttentionPlanner::plan_packed(std::span<const Segment> segments,
                                            StepContext& context) const {
  const auto num_lanes = std::ssize(context.batch.handles);
  const std::int64_t num_tiles = context.num_tokens / tile_tokens_ + num_lanes;
  const auto decode_rows = context.staging->column<std::int32_t>(num_lanes);
  const auto tiles = context.staging->column<std::int32_t>(num_tiles * 2);
  std::ranges::fill(decode_rows.host, -1);
  std::size_t at = 0;
  std::int32_t token = 0;
  bool are_decoding = true;
  for (const Segment& segment : segments) {
    if (segment.handle.is_padding()) {
      break;
    }
    are_decoding = are_decoding && segment.span == 1 && segment.label == LabelId::kMain;
    if (are_decoding) {  // the main label's rows of the page table are the requests'
      decode_rows.host[static_cast<std::size_t>(token)] = segment.handle.row;
    }
    for (std::int32_t done = 0; done < segment.span && !are_decoding; done += tile_tokens_) {
      tiles.host[at++] = token + done;
      tiles.host[at++] = std::min(tile_tokens_, segment.span - done);
    }
    token += segment.span;
  }
  std::ranges::fill(tiles.host.subspan(at), 0);
  AttentionPlan plan;
  plan.num_decode_tokens = num_lanes;
  plan.decode_rows = decode_rows.device;
  plan.prefill_tiles = tiles.device.reshape({num_tiles, 2});
  return plan;
}

void AttentionPlanner::plan_labels(std::span<const Segment> segments, AttentionPlan& plan) const {
  const bool only_decode = plan.num_decode_tokens == std::ssize(segments);
  if (only_decode && !segments.empty() &&
      std::ranges::all_of(segments, [label = segments[0].label](const Segment& segment) {
        return segment.label == label;
      })) {
    plan.num_labels = 1;
    plan.labels[0] = {.label = segments[0].label,
                      .first_token = 0,
                      .num_decode_tokens = plan.num_decode_tokens,
                      .prefill_tiles = plan.prefill_tiles};
    return;
  }
  std::int64_t token = 0;
  std::int64_t tile = 0;
  for (std::size_t first = 0; first < segments.size();) {
    const LabelId label = segments[first].label;
    for (std::int32_t known = 0; known < plan.num_labels; ++known) {
      if (plan.labels[static_cast<std::size_t>(known)].label == label) {
        plan.num_labels = 0;  // the labels are mixed
        return;
      }
    }
    RIGEL_CHECK(plan.num_labels < kMaxLabels, "a step of more than {} labels", kMaxLabels);
    AttentionPlan::Label& part = plan.labels[static_cast<std::size_t>(plan.num_labels++)];
    part = {.label = label, .first_token = token, .num_decode_tokens = 0, .prefill_tiles = {}};
    const std::int64_t first_tile = tile;
    for (; first < segments.size() && segments[first].label == label; ++first) {
      const std::int32_t span = segments[first].span;
      if (token < plan.num_decode_tokens) {
        ++part.num_decode_tokens;
      } else {
        tile += (span + tile_tokens_ - 1) / tile_tokens_;
      }
      token += span;
    }
    part.prefill_tiles = plan.prefill_tiles.slice(0, first_tile, tile - first_tile);
  }
}

void AttentionPlanner::plan_last_keys(std::span<const Segment> segments, AttentionPlan& plan,
                                      StepContext& context) const {
  RIGEL_CHECK(kv_cache_.has_value(), "attention that is not causal needs a KV cache to plan by");
  const std::span<const std::int32_t> places = context.plan<KvPlan>(*kv_cache_).host_token_indices;
  const auto last_keys =
      context.staging->column<std::int32_t>(static_cast<std::int64_t>(places.size()));
  std::size_t token = 0;
  for (const Segment& segment : segments) {
    const std::size_t end = token + static_cast<std::size_t>(segment.span);
    RIGEL_CHECK(end <= places.size(), "attention has more tokens than the KV cache: {} of {}", end,
                places.size());
    for (; token < end; ++token) {
      last_keys.host[token] = places[end - 1];
    }
  }
  RIGEL_CHECK(token == places.size(), "attention has fewer tokens than the KV cache: {} of {}",
              token, places.size());
  plan.causal = false;
  plan.last_keys = last_keys.device;
}

}  // namespace rigel
