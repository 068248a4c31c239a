#include "kernels/turns_native.h"

namespace rigel::kernels::RIGEL_NATIVE {

void end_turn(simt::Pool& /*pool*/, const EndTurnParams& params) {
  bool anybody_needs = false;
  for (std::int32_t lane = 0; lane < params.num_lanes; ++lane) {
    const std::int32_t row = params.rows[lane];
    if (row < 0 || row >= params.num_rows) {
      continue;
    }
    for (std::int32_t column = 0; column < params.num_counting; ++column) {
      params.counting[column][lane] += 1;
    }
    anybody_needs = needs_host(params.stop_rows[row], params.tokens[lane], params.eos_ids,
                               params.num_eos_ids) ||
                    anybody_needs;
  }
  const std::int64_t next = *params.step + 1;
  *params.step = next;
  *params.condition.value = !anybody_needs && next <= *params.last_step ? 1 : 0;
}

}  // namespace rigel::kernels::RIGEL_NATIVE
