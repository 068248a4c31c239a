#include "kernels/rows_native.h"

#include "kernels/native_math.h"
#include "simt/pool.h"

namespace rigel::kernels::RIGEL_NATIVE {

void gather_rows(simt::Pool& pool, const GatherRowsParams& params) {
  const int rows_each = rows_per_item(params.row_bytes / 4);
  pool.parallel_for((params.num_rows + rows_each - 1) / rows_each, [&](int item) {
    const int end = smaller((item + 1) * rows_each, params.num_rows);
    for (int row = item * rows_each; row < end; ++row) {
      const std::int64_t source_row = params.source_rows[row];
      const std::size_t row_bytes = static_cast<std::size_t>(params.row_bytes);
      std::byte* target = params.target + row * params.row_bytes;
      if (source_row < 0 || source_row >= params.num_source_rows) {
        __builtin_memset(target, 0, row_bytes);
      } else {
        __builtin_memcpy(target, params.source + source_row * params.row_bytes, row_bytes);
      }
    }
  });
}

void splice_rows(simt::Pool& pool, const SpliceRowsParams& params) {
  std::int64_t lane_bytes = 0;
  for (int signal = 0; signal < params.num_signals; ++signal) {
    lane_bytes += params.entries[signal].row_bytes;
  }
  const int lanes_each = rows_per_item(lane_bytes / 4);
  pool.parallel_for((params.num_lanes + lanes_each - 1) / lanes_each, [&](int item) {
    const int end = smaller((item + 1) * lanes_each, params.num_lanes);
    for (int signal = 0; signal < params.num_signals; ++signal) {
      const SpliceEntry& entry = params.entries[signal];
      const std::int32_t* source_rows = params.source_rows + signal * params.signal_stride;
      for (int lane = item * lanes_each; lane < end; ++lane) {
        const std::byte* source = splice_source(entry, source_rows[lane]);
        if (source != nullptr) {
          __builtin_memcpy(entry.target + lane * entry.target_stride, source,
                           static_cast<std::size_t>(entry.row_bytes));
        }
      }
    }
  });
}

}  // namespace rigel::kernels::RIGEL_NATIVE
