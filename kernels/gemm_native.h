#pragma once

#include "kernels/gemm_params.h"

namespace simt {
class Pool;
}

namespace rigel::kernels {

/// The product on the CPU. Each output has one accumulator that runs over k in order with FMA, so its bits depend neither on
/// the number of rows nor on tiles, threads or the instruction set level.
/// Cost: near the read bandwidth of the weights for one row, near the FMA peak for many.
namespace native_v3 {
void gemm(simt::Pool& pool, const GemmParams& params);
}
namespace native_v4 {
void gemm(simt::Pool& pool, const GemmParams& params);
}

}  // namespace rigel::kernels
