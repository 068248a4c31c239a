#pragma once

#include "kernels/native.h"
#include "kernels/stop_params.h"

namespace rigel::kernels {

RIGEL_DECLARE_NATIVE(void stop_copy(simt::Pool& pool, const StopCopyParams& params);)

}  // namespace rigel::kernels
