#include "tensor/cuda_error.h"

#include <string>

namespace rigel::detail {

void throw_cuda(cudaError_t code, const char* call, const char* file, int line) {
  // Not every code is recorded, and a later call would report a recorded one a second time.
  static_cast<void>(cudaGetLastError());
  throw DeviceError(fmt::format("{} ({}): {} [{} at {}:{}]", cudaGetErrorName(code),
                                static_cast<int>(code), cudaGetErrorString(code), call, file,
                                line));
}

void check_launch(cudaError_t code, const char* kernel) {
  if (code != cudaSuccess) [[unlikely]] {
    static_cast<void>(cudaGetLastError());
    throw DeviceError(fmt::format("{} ({}): {} [launch of {}]", cudaGetErrorName(code),
                                  static_cast<int>(code), cudaGetErrorString(code), kernel));
  }
}

}  // namespace rigel::detail
