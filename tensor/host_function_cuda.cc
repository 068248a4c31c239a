#include "tensor/cuda_state.h"
#include "tensor/host_function.h"

namespace rigel {

void enqueue_host_function(StreamRef stream, const char* /*name*/, void (*function)(void*),
                           void* data) {
  RIGEL_CUDA(cudaLaunchHostFunc(stream.state().stream, function, data));
}

void enqueue_ordered_host_function(StreamRef stream, const char* name, const void* /*order_key*/,
                                   void (*function)(void*), void* data) {
  enqueue_host_function(stream, name, function, data);
}

}  // namespace rigel
