#pragma once

#include "engine/resource.h"

#include <cstdint>
#include <optional>
#include <span>

namespace rigel {

/// Sorts a step's tokens into what decode attention and what prefill attention computes: leading segments of one token are
/// decode lanes, the rest is cut into tiles of at most `tile_tokens` tokens of one stream. Where the segments lie label after
/// label, each label's part is given too. Attention that is not causal needs the KV cache, which knows how far a segment goes.
/// A packed capture has places for as many decode lanes as lanes, and for the most tiles that they and its tokens can make.
class AttentionPlanner final : public Resource {
 public:
  AttentionPlanner(ResourceKey key, std::int32_t tile_tokens,
                   std::optional<ResourceKey> kv_cache = std::nullopt)
      : Resource(key), tile_tokens_(tile_tokens), kv_cache_(kv_cache) {}

  [[nodiscard]] std::span<const ResourceKey> depends_on() const override {
    return kv_cache_ ? std::span<const ResourceKey>(&*kv_cache_, 1)
                     : std::span<const ResourceKey>();
  }
  [[nodiscard]] bool supports_preplan() const override { return true; }
  void plan(const SubmoduleStep& step, StepContext& context) override;

 private:
  [[nodiscard]] AttentionPlan plan_segments(std::span<const Segment> segments,
                                            StepContext& context) const;
  [[nodiscard]] AttentionPlan plan_packed(std::span<const Segment> segments,
                                          StepContext& context) const;
  void plan_labels(std::span<const Segment> segments, AttentionPlan& plan) const;
  void plan_last_keys(std::span<const Segment> segments, AttentionPlan& plan,
                      StepContext& context) const;

  std::int32_t tile_tokens_;
  std::optional<ResourceKey> kv_cache_;
};

}  // namespace rigel
