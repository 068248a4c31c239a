#include "kernels/stop_native.h"

namespace rigel::kernels::RIGEL_NATIVE {

void stop_copy(simt::Pool& /*pool*/, const StopCopyParams& params) {
  const std::uint64_t step = static_cast<std::uint64_t>(*params.step);
  std::byte* const entry =
      params.ring + static_cast<std::int64_t>(step % static_cast<unsigned>(params.num_entries)) *
                        params.entry_bytes;
  const auto is_real_lane = [&](std::int32_t lane) {
    return lane < params.num_lanes && params.rows[lane] >= 0 && params.rows[lane] < params.num_rows;
  };
  for (std::int32_t number = 0; number < params.num_buffers; ++number) {
    const StopBufferCopy& buffer = params.buffers[number];
    for (std::int32_t row = 0; row < buffer.num_rows; ++row) {
      if (travels(buffer, row, params.num_lanes, is_real_lane(row))) {
        const std::int64_t offset = static_cast<std::int64_t>(row) * buffer.row_bytes;
        __builtin_memcpy(entry + buffer.offset_bytes + offset, buffer.source + offset,
                         static_cast<std::size_t>(buffer.row_bytes));
      }
    }
  }
  StepRecord* const records = reinterpret_cast<StepRecord*>(entry + params.records_offset);
  for (std::int32_t lane = 0; lane < params.num_lanes; ++lane) {
    if (!is_real_lane(lane)) {
      continue;
    }
    const std::int32_t row = params.rows[lane];
    StopRow& state = params.stop_rows[row];
    const StepRecord record =
        step_record(state, row, params.tokens[lane], params.eos_ids, params.num_eos_ids);
    state.num_generated = record.num_generated;
    // Not the whole record at once: the tag is released behind the rest.
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
