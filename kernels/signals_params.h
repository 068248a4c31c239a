#pragma once

#include <cstddef>
#include <cstdint>

namespace rigel::kernels {

/// One row on its way into a tensor of its own, as the device reads it from the step's table.
struct RowCopy {
  std::byte* target;
  const std::byte* source;
  std::int64_t num_bytes;  // 0: padding
};
inline constexpr int kRowCopyWords = 3;
static_assert(sizeof(RowCopy) == kRowCopyWords * sizeof(std::int64_t));

struct MaterializeRowsParams {
  const RowCopy* copies;  // (num_copies)
  std::int32_t num_copies;
};

struct AdvanceRowsParams {
  std::int32_t* positions;      // (num_rows) or null
  std::int32_t* loop_counters;  // (num_rows), counter_stride apart, or null
  std::int32_t* last_tokens;    // (num_rows) or null
  const std::int32_t* rows;     // (num_lanes)
  const std::int32_t* tokens;   // (num_lanes); null only where last_tokens is
  const std::int32_t* spans;    // (num_lanes) or null: one position a lane
  std::int64_t counter_stride;
  std::int32_t num_rows;
  std::int32_t num_lanes;
};

}  // namespace rigel::kernels
