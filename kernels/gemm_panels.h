#pragma once

#include "kernels/gemm_backend.h"

#include <memory>

namespace rigel::kernels {

/// Bytes of a weight in GemmLayout::kPanels.
[[nodiscard]] std::int64_t gemm_panels_bytes(Dtype dtype, std::int64_t num_rows,
                                             std::int64_t num_columns);

/// Packs GemmLayout::kPanels: straight into the memory of the virtual device, by way of host memory for a GPU.
[[nodiscard]] std::unique_ptr<GemmWeightPacker> make_panel_packer(Device& device, Dtype dtype,
                                                                  std::int64_t num_rows,
                                                                  std::int64_t num_columns);

}  // namespace rigel::kernels
