#pragma once

#include "kernels/stop_params.h"
#include "simt/loop_condition.h"

#include <cstdint>

namespace rigel::kernels {

inline constexpr int kMaxCountingColumns = 4;

struct EndTurnParams {
  std::int32_t* counting[kMaxCountingColumns];  // (num_lanes) each
  std::int64_t* step;                           // (1)
  const std::int64_t* last_step;                // (1)
  const StopRow* stop_rows;                     // (num_rows)
  const std::int32_t* eos_ids;                  // (num_eos_ids)
  const std::int32_t* rows;                     // (num_lanes)
  const std::int32_t* tokens;                   // (num_lanes)
  simt::LoopCondition condition;
  std::int32_t num_counting;
  std::int32_t num_rows;
  std::int32_t num_eos_ids;
  std::int32_t num_lanes;
};

/// Whether the host must see what the row has drawn before anything else is drawn for it. The row counts the token already.
static constexpr bool needs_host(const StopRow& row, std::int32_t token,
                                 const std::int32_t* eos_ids, std::int32_t num_eos_ids) {
  return token < 0 || (stop_flags(row, row.num_generated, token, eos_ids, num_eos_ids) &
                       (kStopped | kHostMustCheck)) != 0;
}

}  // namespace rigel::kernels
