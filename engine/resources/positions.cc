#include "engine/resources/positions.h"

namespace rigel {

void Positions::plan(const SubmoduleStep& step, StepContext& context) {
  const auto positions = context.staging->column<std::int32_t>(context.num_tokens);
  const auto rows = context.staging->column<std::int32_t>(context.num_tokens);
  std::size_t token = 0;
  for (const Segment& segment : step.segments) {
    const bool padding = segment.handle.is_padding();
    const std::int32_t first = padding ? 0 : next(segment.handle);
    for (std::int32_t offset = 0; offset < segment.span; ++offset, ++token) {
      positions.host[token] = padding ? -1 : first + offset;
      rows.host[token] = padding ? -1 : segment.handle.row;
    }
  }
  RIGEL_CHECK(token == static_cast<std::size_t>(context.num_tokens),
              "the segments cover {} tokens of {}", token, context.num_tokens);
  context.set_plan(key(), PositionPlan{positions.device, rows.device});
}

void Positions::commit(const SubmoduleStep& step, const StepContext& /*context*/) {
  for (const Segment& segment : step.segments) {
    if (!segment.handle.is_padding()) {
      next_[static_cast<std::size_t>(segment.handle.row)] += segment.span;
    }
  }
}

}  // namespace rigel
