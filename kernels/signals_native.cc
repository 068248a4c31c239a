#include "kernels/signals_native.h"

#include "kernels/native_math.h"
#include "simt/pool.h"

namespace rigel::kernels::RIGEL_NATIVE {

void materialize_rows(simt::Pool& pool, const MaterializeRowsParams& params) {
  std::int64_t total_bytes = 0;
  for (int index = 0; index < params.num_copies; ++index) {
    total_bytes += params.copies[index].num_bytes;
  }
  const int copies_each =
      rows_per_item(total_bytes / 4 / (params.num_copies < 1 ? 1 : params.num_copies));
  pool.parallel_for((params.num_copies + copies_each - 1) / copies_each, [&](int item) {
    const int end = smaller((item + 1) * copies_each, params.num_copies);
    for (int index = item * copies_each; index < end; ++index) {
      const RowCopy& copy = params.copies[index];
      if (copy.num_bytes > 0) {
        __builtin_memcpy(copy.target, copy.source, static_cast<std::size_t>(copy.num_bytes));
      }
    }
  });
}

}  // namespace rigel::kernels::RIGEL_NATIVE
