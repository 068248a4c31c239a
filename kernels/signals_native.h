#pragma once

#include "kernels/native.h"
#include "kernels/signals_params.h"

namespace rigel::kernels {

RIGEL_DECLARE_NATIVE(void materialize_rows(simt::Pool& pool, const MaterializeRowsParams& params);)

}  // namespace rigel::kernels
