#include "kernels/embedding_native.h"

#include "kernels/native_math.h"
#include "simt/pool.h"

namespace rigel::kernels::RIGEL_NATIVE {

void select_tokens(simt::Pool& /*pool*/, const SelectTokensParams& params) {
  for (int token = 0; token < params.num_tokens; ++token) {
    const std::int32_t row = params.token_rows[token];
    const std::int32_t staged = params.staged_ids[token];
    params.out_ids[token] = row < 0 ? -1 : (staged >= 0 ? staged : params.last_token[row]);
  }
}

template <class T>
void embed(simt::Pool& pool, const EmbedParams& params) {
  const std::int64_t columns = params.columns;
  const int tokens_per_item = rows_per_item(columns);
  const int num_items = (params.num_tokens + tokens_per_item - 1) / tokens_per_item;
  pool.parallel_for(num_items, [&](int item) {
    const int first = item * tokens_per_item;
    const int end = smaller(first + tokens_per_item, params.num_tokens);
    for (int token = first; token < end; ++token) {
      float* out = params.out + token * columns;
      const std::int32_t id = params.ids[token];
      if (id < 0 || id >= params.vocabulary) {
        __builtin_memset(out, 0, static_cast<std::size_t>(columns) * sizeof(float));
        continue;
      }
      const T* row = static_cast<const T*>(params.table) + id * columns;
      const F8 scale = splat8(params.scale);
      std::int64_t column = 0;
      for (; column + 8 <= columns; column += 8) {
        store8(out + column, load8(row + column) * scale);
      }
      const int rest = static_cast<int>(columns - column);
      store_part(out + column, load_part(row + column, rest) * scale, rest);
    }
  });
}

template void embed<float>(simt::Pool&, const EmbedParams&);
template void embed<simt::bf16>(simt::Pool&, const EmbedParams&);

}  // namespace rigel::kernels::RIGEL_NATIVE
