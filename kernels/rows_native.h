#pragma once

#include "kernels/native.h"
#include "kernels/rows_params.h"

namespace rigel::kernels {

RIGEL_DECLARE_NATIVE(void gather_rows(simt::Pool& pool, const GatherRowsParams& params);
                     void splice_rows(simt::Pool& pool, const SpliceRowsParams& params);)

}  // namespace rigel::kernels
