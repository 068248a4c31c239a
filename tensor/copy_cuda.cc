#include "tensor/copy.h"
#include "tensor/copy_check.h"
#include "tensor/cuda_state.h"

namespace rigel {
namespace {

void enqueue(StreamRef stream, void* target, const void* source, std::int64_t num_bytes,
             cudaMemcpyKind kind) {
  if (num_bytes > 0) {
    RIGEL_CUDA(cudaMemcpyAsync(target, source, static_cast<std::size_t>(num_bytes), kind,
                               stream.state().stream));
  }
}

}  // namespace

void copy(StreamRef stream, DeviceView target, ConstHostView source) {
  enqueue(stream, target.raw(), source.raw(), detail::bytes_to_copy(target, source),
          cudaMemcpyHostToDevice);
}

void copy(StreamRef stream, HostView target, ConstDeviceView source) {
  enqueue(stream, target.raw(), source.raw(), detail::bytes_to_copy(target, source),
          cudaMemcpyDeviceToHost);
}

void copy(StreamRef stream, DeviceView target, ConstDeviceView source) {
  // Default: a device view may also name pinned memory.
  enqueue(stream, target.raw(), source.raw(), detail::bytes_to_copy(target, source),
          cudaMemcpyDefault);
}

void fill_bytes(StreamRef stream, DeviceView target, std::uint8_t value) {
  const std::int64_t num_bytes = detail::bytes_to_fill(target);
  if (num_bytes > 0) {
    RIGEL_CUDA(cudaMemsetAsync(target.raw(), value, static_cast<std::size_t>(num_bytes),
                               stream.state().stream));
  }
}

}  // namespace rigel
