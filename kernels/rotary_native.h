#pragma once

#include "kernels/native.h"
#include "kernels/rotary_params.h"

namespace rigel::kernels {

/// The CPU variants, for T = simt::bf16 and float: the bits of the device text. Threads share the tokens.
RIGEL_DECLARE_NATIVE(void rotary_angles(simt::Pool& pool, const RotaryAnglesParams& params);
                     template <class T, bool INTERLEAVED>
                     void rotary(simt::Pool& pool, const RotaryParams& params);)

}  // namespace rigel::kernels
