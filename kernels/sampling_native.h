#pragma once

#include "kernels/native.h"
#include "kernels/sampling_params.h"

namespace rigel::kernels {

RIGEL_DECLARE_NATIVE(void sample(simt::Pool& pool, const SampleParams& params);
                     void argmax(simt::Pool& pool, const ArgmaxParams& params);
                     void publish_tokens(simt::Pool& pool, const PublishParams& params);)

}  // namespace rigel::kernels
