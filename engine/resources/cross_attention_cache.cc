#include "engine/resources/cross_attention_cache.h"

#include "tensor/error.h"

namespace rigel {

CrossAttentionCache::CrossAttentionCache(ResourceKey key, Device& device,
                                         const KvCacheConfig& config)
    : Resource(key),
      store_(key, device, config),
      num_written_(static_cast<std::size_t>(config.num_rows), 0) {
  RIGEL_CHECK(
      config.num_labels == 1 && config.retention.max_tokens == 0 && !config.enable_prefix_cache,
      "a cross-attention cache has one label, keeps everything and shares no prefixes: got "
      "num_labels {}, retention.max_tokens {}",
      config.num_labels, config.retention.max_tokens);
}

std::span<const Segment> CrossAttentionCache::writes(const SubmoduleStep& step) const {
  const std::span<const Segment> own = std::get<KvStep>(*step.find(key())).segments;
  RIGEL_CHECK(!own.empty(), "a step with cross attention declares its requests' keys");
  return own;
}

AdmitOutcome CrossAttentionCache::admit(const SubmoduleStep& step, const StepContext& context) {
  for (const Segment& segment : writes(step)) {
    RIGEL_CHECK(segment.span == 0 || segment.handle.is_padding() ||
                    store_.stored_length(segment.handle) == 0,
                "row {} has written its {} keys, and would write {} more", segment.handle.row,
                store_.stored_length(segment.handle), segment.span);
  }
  return store_.admit(step, context);
}

void CrossAttentionCache::plan(const SubmoduleStep& step, StepContext& context) {
  store_.plan(step, context);
  CrossAttentionPlan plan{
      .writes = context.plan<KvPlan>(key()), .query_streams = {}, .last_keys = {}};
  const std::span<const Segment> written = writes(step);
  for (const Segment& segment : written) {
    if (!segment.handle.is_padding()) {
      num_written_[static_cast<std::size_t>(segment.handle.row)] = segment.span;
    }
  }
  std::int64_t num_queries = 0;
  for (const Segment& segment : step.segments) {
    num_queries += segment.span;
  }
  const auto streams = context.staging->column<std::int32_t>(num_queries);
  const auto last_keys = context.staging->column<std::int32_t>(num_queries);
  std::size_t token = 0;
  for (const Segment& segment : step.segments) {
    const bool padding = segment.handle.is_padding();
    const std::int32_t num_keys =
        padding ? 0
                : store_.stored_length(segment.handle) +
                      num_written_[static_cast<std::size_t>(segment.handle.row)];
    for (std::int32_t offset = 0; offset < segment.span; ++offset, ++token) {
      streams.host[token] = num_keys == 0 ? -1 : store_.table_row(segment.handle, LabelId::kMain);
      last_keys.host[token] = num_keys - 1;
    }
  }
  for (const Segment& segment : written) {
    if (!segment.handle.is_padding()) {
      num_written_[static_cast<std::size_t>(segment.handle.row)] = 0;
    }
  }
  plan.query_streams = streams.device;
  plan.last_keys = last_keys.device;
  context.set_plan(key(), plan);
}

}  // namespace rigel
