#pragma once

#include "kernels/kv_pages_params.h"
#include "simt/simt.h"

namespace rigel::kernels {

/// Grid: (blocks along a page, layers, pages).
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) copy_pages_kernel(CopyPagesParams p) {
  const int page = static_cast<int>(blockIdx.z);
  const int layer = static_cast<int>(blockIdx.y);
  std::byte* const target =
      p.target.data + p.target_pages[page] * p.target.page_stride + layer * p.target.layer_stride;
  const std::byte* const source =
      p.source.data + p.source_pages[page] * p.source.page_stride + layer * p.source.layer_stride;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * BLOCK * 16;
  for (std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * BLOCK + threadIdx.x) * 16;
       at < p.block_bytes; at += step) {
    simt::st16(target + at, simt::ld16(source + at));
  }
}

}  // namespace rigel::kernels
