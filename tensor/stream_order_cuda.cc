#include "tensor/cuda_state.h"
#include "tensor/stream_order.h"

namespace rigel::detail {

void order_after(StreamState& stream, StreamState& other) noexcept {
  // An event may be destroyed while a wait for it is pending.
  cudaEvent_t event = nullptr;
  if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess) {
    static_cast<void>(cudaEventRecord(event, other.stream));
    static_cast<void>(cudaStreamWaitEvent(stream.stream, event, 0));
    static_cast<void>(cudaEventDestroy(event));
  }
}

// The order of the stream is all that CUDA needs.
void retire_block(StreamState& /*stream*/, void* /*address*/) noexcept {}
void revive_block(StreamState& /*stream*/, void* /*address*/) noexcept {}

}  // namespace rigel::detail
