#pragma once

#include "kernels/gate_params.h"
#include "kernels/native.h"

namespace rigel::kernels {

RIGEL_DECLARE_NATIVE(template <class T> void gate_silu(simt::Pool& pool, const GateParams& params);
                     template <class T>
                     void gate_gelu_tanh(simt::Pool& pool, const GateParams& params);
                     template <class T>
                     void gate_gelu_erf(simt::Pool& pool, const GateParams& params);
                     template <class O, class T>
                     void add(simt::Pool& pool, const AddParams& params);)

}  // namespace rigel::kernels
