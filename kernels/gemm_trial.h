#pragma once

#include "kernels/gemm_backend.h"

namespace rigel {
class Device;
}

namespace rigel::kernels {

/// Whether `library` keeps this machine's promise: a row's bits do not depend on the number of rows or its place among them, and
/// the values are those of our own code within rounding. Multiplies one small matrix of each dtype that the library takes.
/// For load time: the library's code paths differ between machines, and a wrong one must not serve. CPU device.
[[nodiscard]] bool keeps_bits(Device& device, GemmBackend& library, GemmBackend& own);

}  // namespace rigel::kernels
