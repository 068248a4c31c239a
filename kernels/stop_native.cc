#include "kernels/stop_native.h"

namespace rigel::kernels::RIGEL_NATIVE {

void stop_copy(simt::Pool& /*pool*/, const StopCopyParams& params) {
  const std::uint64_t step = static_cast<std::uint64_t>(*params.step);
  const std::uint64_t entry = step % static_cast<unsigned>(params.num_entries);
  StepRecord* const records = params.ring + entry * static_cast<std::uint64_t>(params.max_lanes);
  for (std::int32_t lane = 0; lane < params.num_lanes; ++lane) {
    const std::int32_t row = params.rows[lane];
    if (row < 0 || row >= params.num_rows) {
      continue;
    }
    StopRow& state = params.stop_rows[row];
    const StepRecord record =
        step_record(state, row, params.tokens[lane], params.eos_ids, params.num_eos_ids);
    state.num_generated = record.num_generated;
    // Not the whole record at once: a reader may be polling the tag.
    StepRecord& target = records[lane];
    target.row = record.row;
    target.generation = record.generation;
    target.token = record.token;
    target.flags = record.flags;
    target.num_generated = record.num_generated;
    target.length = record.length;
    __atomic_store_n(&target.step, step, __ATOMIC_RELEASE);
  }
}

}  // namespace rigel::kernels::RIGEL_NATIVE
