#include "kernels/kv_pages_native.h"

#include "simt/pool.h"

namespace rigel::kernels::RIGEL_NATIVE {

void copy_pages(simt::Pool& pool, const CopyPagesParams& params) {
  pool.parallel_for(params.num_pages, [&](int page) {
    std::byte* target = params.target.data + params.target_pages[page] * params.target.page_stride;
    const std::byte* source =
        params.source.data + params.source_pages[page] * params.source.page_stride;
    for (int layer = 0; layer < params.num_layers; ++layer) {
      __builtin_memcpy(target + layer * params.target.layer_stride,
                       source + layer * params.source.layer_stride,
                       static_cast<std::size_t>(params.block_bytes));
    }
  });
}

}  // namespace rigel::kernels::RIGEL_NATIVE
