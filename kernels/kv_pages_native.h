#pragma once

#include "kernels/kv_pages_params.h"
#include "kernels/native.h"

namespace rigel::kernels {

RIGEL_DECLARE_NATIVE(void copy_pages(simt::Pool& pool, const CopyPagesParams& params);)

}  // namespace rigel::kernels
