#pragma once

#include "tensor/error.h"

#include <cuda_runtime_api.h>

namespace rigel::detail {

/// Throws DeviceError that names call, code, file and line, and clears the runtime's own record of the error.
[[noreturn, gnu::cold]] void throw_cuda(cudaError_t code, const char* call, const char* file,
                                        int line);

inline void check_cuda(cudaError_t code, const char* call, const char* file, int line) {
  if (code != cudaSuccess) [[unlikely]] {
    throw_cuda(code, call, file, line);
  }
}

/// Throws DeviceError that names the kernel.
void check_launch(cudaError_t code, const char* kernel);

}  // namespace rigel::detail

/// Calls the CUDA runtime; throws DeviceError unless it succeeds.
#define RIGEL_CUDA(call) ::rigel::detail::check_cuda((call), #call, __FILE__, __LINE__)
