#pragma once

#include "kernels/stop_params.h"
#include "simt/simt.h"

namespace rigel::kernels {

/// Grid: ceil(S / BLOCK). One thread a lane.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) stop_copy_kernel(StopCopyParams p) {
  const int lane = static_cast<int>(blockIdx.x) * BLOCK + static_cast<int>(threadIdx.x);
  if (lane >= p.num_lanes) {
    return;
  }
  const int row = p.rows[lane];
  if (row < 0 || row >= p.num_rows) {
    return;
  }
  const StopRow state = p.stop_rows[row];
  const StepRecord record = step_record(state, row, p.tokens[lane], p.eos_ids, p.num_eos_ids);
  p.stop_rows[row].num_generated = record.num_generated;

  const std::uint64_t step = static_cast<std::uint64_t>(*p.step);
  const std::int64_t entry = static_cast<std::int64_t>(step % static_cast<unsigned>(p.num_entries));
  StepRecord* const target = p.ring + entry * p.max_lanes + lane;
  // Few and wide writes: the ring lies across the bus.
  simt::st16(target, {{static_cast<std::uint32_t>(record.row), record.generation,
                       static_cast<std::uint32_t>(record.token), record.flags}});
  simt::st8(&target->num_generated, {{static_cast<std::uint32_t>(record.num_generated),
                                      static_cast<std::uint32_t>(record.length)}});
  simt::store_release_system(&target->step, step);
}

/// Grid: ceil(n / (BLOCK / 4)). Four threads an update, each moving 16 of its 64 bytes.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) set_stop_rows_kernel(StopRowUpdateParams p) {
  const int index = static_cast<int>(blockIdx.x) * BLOCK + static_cast<int>(threadIdx.x);
  const int update = index / 4;
  const int offset = index % 4 * 16;
  if (update >= p.num_updates) {
    return;
  }
  const int row = p.rows[update];
  if (row < 0 || row >= p.num_rows) {
    return;
  }
  const std::byte* const source = reinterpret_cast<const std::byte*>(p.values + update);
  simt::st16(reinterpret_cast<std::byte*>(p.stop_rows + row) + offset, simt::ld16(source + offset));
}

}  // namespace rigel::kernels
