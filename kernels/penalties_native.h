#pragma once

#include "kernels/native.h"
#include "kernels/penalties_params.h"

namespace rigel::kernels {

RIGEL_DECLARE_NATIVE(void apply_penalties(simt::Pool& pool, const PenaltyParams& params);)

}  // namespace rigel::kernels
