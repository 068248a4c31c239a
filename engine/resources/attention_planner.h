#pragma once

#include "engine/resource.h"

#include <cstdint>

namespace rigel {

/// Sorts a step's tokens into what decode attention and what prefill attention computes: leading segments of one token are
/// decode lanes, the rest is cut into tiles of at most `tile_tokens` tokens of one row.
class AttentionPlanner final : public Resource {
 public:
  AttentionPlanner(ResourceKey key, std::int32_t tile_tokens)
      : Resource(key), tile_tokens_(tile_tokens) {}

  void plan(const SubmoduleStep& step, StepContext& context) override;

 private:
  std::int32_t tile_tokens_;
};

}  // namespace rigel
