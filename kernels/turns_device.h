#pragma once

#include "kernels/turns_params.h"
#include "simt/simt.h"

namespace rigel::kernels {

/// One block, whose threads share the lanes.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) end_turn_kernel(EndTurnParams p) {
  simt::wait_for_predecessor();
  SIMT_SHARED(int, red, BLOCK / 32);
  int needs = 0;
  for (int lane = static_cast<int>(threadIdx.x); lane < p.num_lanes; lane += BLOCK) {
    const int row = p.rows[lane];
    if (row < 0 || row >= p.num_rows) {
      continue;
    }
#pragma unroll
    for (int column = 0; column < kMaxCountingColumns; ++column) {
      if (column < p.num_counting) {
        p.counting[column][lane] += 1;
      }
    }
    needs |= needs_host(p.stop_rows[row], p.tokens[lane], p.eos_ids, p.num_eos_ids) ? 1 : 0;
  }
  const int anybody_needs = simt::block_max<BLOCK>(needs, red);
  if (threadIdx.x == 0) {
    const std::int64_t next = *p.step + 1;
    *p.step = next;
    simt::set_loop_condition(p.condition, anybody_needs == 0 && next <= *p.last_step);
  }
}

}  // namespace rigel::kernels
