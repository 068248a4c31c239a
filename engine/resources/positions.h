#pragma once

#include <cstdint>
#include <vector>

#include "engine/resource.h"

namespace rigel {

/// The absolute position of each row's next token, and for a step the columns of positions and rows of its tokens.
class Positions final : public Resource {
 public:
  Positions(ResourceKey key, std::int32_t num_rows)
      : Resource(key), next_(static_cast<std::size_t>(num_rows), 0) {}

  void ingest_request(const RequestInfo& info) override { reset(info.handle); }
  void plan(const SubmoduleStep& step, StepContext& context) override;
  void commit(const SubmoduleStep& step, const StepContext& context) override;

  /// The row starts over at position 0.
  void reset(RequestHandle handle) { next_.at(static_cast<std::size_t>(handle.row)) = 0; }
  [[nodiscard]] std::int32_t next(RequestHandle handle) const {
    return next_.at(static_cast<std::size_t>(handle.row));
  }

 private:
  std::vector<std::int32_t> next_;  // by row
};

}  // namespace rigel
