#pragma once

#include "kernels/native.h"
#include "kernels/rows_params.h"

namespace rigel::kernels {

RIGEL_DECLARE_NATIVE(void move_rows(simt::Pool& pool, const MoveRowsParams& params);)

}  // namespace rigel::kernels
