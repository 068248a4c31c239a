#pragma once

#include "kernels/embedding_params.h"
#include "kernels/native.h"

namespace rigel::kernels {

RIGEL_DECLARE_NATIVE(void select_tokens(simt::Pool& pool, const SelectTokensParams& params);
                     template <class T> void embed(simt::Pool& pool, const EmbedParams& params);)

}  // namespace rigel::kernels
