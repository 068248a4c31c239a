#pragma once

#include "kernels/gemm_params.h"
#include "simt/launch_plan.h"
#include "tensor/stream.h"

namespace rigel::kernels {

/// Bytes and FLOPs of a product: W, x and bias read once, out written once (and read where it accumulates).
[[nodiscard]] simt::Traffic gemm_traffic(const GemmParams& params);

/// The launch of our own kernel for a product. Pure.
[[nodiscard]] simt::LaunchPlan gemm_plan(const GemmParams& params);

/// Finishes a product whose sums (M, N) f32 lie at `params.x`, rows of `params.x_row_stride`: adds the bias and puts them
/// where the output mode says. For libraries that can't add an f32 bias before rounding. Capture-safe.
void gemm_add_bias(StreamRef stream, const GemmParams& params);

}  // namespace rigel::kernels
