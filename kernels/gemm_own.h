#pragma once

#include "kernels/gemm_params.h"
#include "simt/launch_plan.h"
#include "tensor/dtype.h"

namespace rigel::kernels {

/// Bytes and FLOPs of a product: W, x and bias read once, out written once (and read where it accumulates).
[[nodiscard]] simt::Traffic gemm_traffic(const GemmParams& params);

/// The launch of our own kernel for a product. Pure.
[[nodiscard]] simt::LaunchPlan gemm_plan(const GemmParams& params);

}  // namespace rigel::kernels
