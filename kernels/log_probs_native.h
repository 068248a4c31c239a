#pragma once

#include "kernels/log_probs_params.h"
#include "kernels/native.h"

namespace rigel::kernels {

RIGEL_DECLARE_NATIVE(void log_probs(simt::Pool& pool, const LogProbParams& params);)

}  // namespace rigel::kernels
