#pragma once

// Text of both machines: a warp's fragments of small matrices, for mma.sync m16n8k16 with bf16 operands and float sums. With
// g = lane / 4 and t = lane % 4, a lane holds (pairs are neighbours in one 32-bit word, the lower index in the lower half):
//   FragA, 16 x 16 (rows x k):  word 0 (g, 2t..2t+1)  1 (g+8, 2t..)  2 (g, 2t+8..)  3 (g+8, 2t+8..)
//   FragB, 16 x 8 (k x cols):   word 0 (2t..2t+1, g)  1 (2t+8.., g)
//   FragC, 16 x 8 (rows x cols): 0, 1 (g, 2t..2t+1)   2, 3 (g+8, 2t..2t+1)
// Source: PTX ISA, "Matrix fragments for mma.m16n8k16".

#include <cstdint>

namespace simt {

struct FragA {
  std::uint32_t word[4];
};
struct FragB {
  std::uint32_t word[2];
};
struct FragC {
  float sum[4];
};

}  // namespace simt
