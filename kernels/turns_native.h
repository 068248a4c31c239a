#pragma once

#include "kernels/native.h"
#include "kernels/turns_params.h"

namespace rigel::kernels {

RIGEL_DECLARE_NATIVE(void end_turn(simt::Pool& pool, const EndTurnParams& params);)

}  // namespace rigel::kernels
