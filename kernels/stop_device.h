#pragma once

#include "kernels/move_bytes_device.h"
#include "kernels/stop_params.h"
#include "simt/simt.h"

namespace rigel::kernels {

/// Grid: ceil(rows / warps of a block), rows: of the longest buffer, or lanes. A warp a row, so that a row's bytes leave side
/// by side: the ring lies across the bus.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) stop_copy_kernel(StopCopyParams p) {
  simt::wait_for_predecessor();
  constexpr int kWarps = BLOCK / 32;
  const int index = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  const int part = static_cast<int>(threadIdx.x) % 32;
  const int row = index < p.num_lanes ? p.rows[index] : -1;
  const bool is_real_lane = row >= 0 && row < p.num_rows;
  const std::uint64_t step = static_cast<std::uint64_t>(*p.step);
  std::byte* const entry =
      p.ring +
      static_cast<std::int64_t>(step % static_cast<unsigned>(p.num_entries)) * p.entry_bytes;
  for (int number = 0; number < p.num_buffers; ++number) {
    const StopBufferCopy buffer = p.buffers[number];
    if (travels(buffer, index, p.num_lanes, is_real_lane)) {
      const std::int64_t offset = static_cast<std::int64_t>(index) * buffer.row_bytes;
      move_bytes(entry + buffer.offset_bytes + offset, buffer.source + offset, buffer.row_bytes,
                 part, 32);
    }
  }
  if (!is_real_lane) {
    return;
  }
  __syncwarp();  // the tag's release covers the rows that the other threads have moved
  if (part != 0) {
    return;
  }
  const StopRow state = p.stop_rows[row];
  const StepRecord record = step_record(state, row, p.tokens[index], p.eos_ids, p.num_eos_ids);
  p.stop_rows[row].num_generated = record.num_generated;

  StepRecord* const target = reinterpret_cast<StepRecord*>(entry + p.records_offset) + index;
  // Few and wide writes.
  simt::st16(target, {{static_cast<std::uint32_t>(record.row), record.generation,
                       static_cast<std::uint32_t>(record.token), record.flags}});
  simt::st8(&target->num_generated, {{static_cast<std::uint32_t>(record.num_generated),
                                      static_cast<std::uint32_t>(record.length)}});
  simt::store_release_system(&target->step, step);
}

/// Grid: ceil(n / (BLOCK / 4)). Four threads an update, each moving 16 of its 64 bytes.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) set_stop_rows_kernel(StopRowUpdateParams p) {
  simt::wait_for_predecessor();
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
