#include "kernels/rows_native.h"

#include "kernels/native_math.h"
#include "simt/pool.h"

namespace rigel::kernels::RIGEL_NATIVE {

void move_rows(simt::Pool& pool, const MoveRowsParams& params) {
  std::int64_t bytes_a_row = 0;
  for (int index = 0; index < params.num_moves; ++index) {
    bytes_a_row += params.moves[index].row_bytes;
  }
  const int rows_each = rows_per_item(bytes_a_row / 4);
  pool.parallel_for((params.num_rows + rows_each - 1) / rows_each, [&](int item) {
    const int end = smaller((item + 1) * rows_each, params.num_rows);
    for (int row = item * rows_each; row < end; ++row) {
      const std::int64_t source_row = params.source_rows[row];
      if (source_row < 0 && !params.zero_missing) {
        continue;
      }
      for (int index = 0; index < params.num_moves; ++index) {
        const RowMove& move = params.moves[index];
        const std::size_t row_bytes = static_cast<std::size_t>(move.row_bytes);
        std::byte* target = move.target + row * move.row_bytes;
        if (source_row < 0) {
          __builtin_memset(target, 0, row_bytes);
        } else {
          __builtin_memcpy(target, move.source + source_row * move.row_bytes, row_bytes);
        }
      }
    }
  });
}

}  // namespace rigel::kernels::RIGEL_NATIVE
