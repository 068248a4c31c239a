#pragma once

#include "kernels/native.h"
#include "kernels/rms_norm_params.h"

namespace rigel::kernels {

RIGEL_DECLARE_NATIVE(template <class T>
                     void rms_norm(simt::Pool& pool, const RmsNormParams& params);
                     template <class T>
                     void add_rms_norm(simt::Pool& pool, const RmsNormParams& params);
                     template <class T>
                     void head_rms_norm(simt::Pool& pool, const HeadRmsNormParams& params);)

}  // namespace rigel::kernels
