#pragma once

#include "engine/resource.h"

#include <cstdint>
#include <vector>

namespace rigel {

/// The absolute position of each row's next token, and for a step the columns of positions and rows of its tokens.
class Positions final : public Resource {
 public:
  Positions(ResourceKey key, std::int32_t num_rows)
      : Resource(key), next_(static_cast<std::size_t>(num_rows), 0) {}

  void ingest_request(const RequestInfo& info) override { next_of(info.handle) = 0; }
  void restart_request(RequestHandle handle, Epoch /*last_touch*/) override { next_of(handle) = 0; }
  void plan(const SubmoduleStep& step, StepContext& context) override;
  void commit(const SubmoduleStep& step, const StepContext& context) override;

  [[nodiscard]] std::int32_t next(RequestHandle handle) const {
    return next_.at(static_cast<std::size_t>(handle.row));
  }

 private:
  [[nodiscard]] std::int32_t& next_of(RequestHandle handle) {
    return next_.at(static_cast<std::size_t>(handle.row));
  }

  std::vector<std::int32_t> next_;  // by row
};

}  // namespace rigel
