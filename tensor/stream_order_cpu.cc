#include "tensor/cpu_state.h"
#include "tensor/stream_order.h"

namespace rigel::detail {

// Commands are pushed past VirtualDevice::submit: it would take a failure of the stream that nobody here could report.

void order_after(StreamState& stream, StreamState& other) noexcept {
  stream.queue->push(simt::Command(simt::Command::Kind::kWait, "wait",
                                   simt::WaitWork{other.queue, other.queue->position()}));
}

void retire_block(StreamState& stream, void* address) noexcept {
  if (stream.virtual_device->options().fill_garbage) {
    stream.queue->push(
        simt::Command(simt::Command::Kind::kMemory, "retire", simt::RetireWork{address}));
  }
}

void revive_block(StreamState& stream, void* address) noexcept {
  if (stream.virtual_device->options().fill_garbage) {
    stream.queue->push(
        simt::Command(simt::Command::Kind::kMemory, "revive", simt::ReviveWork{address}));
  }
}

}  // namespace rigel::detail
