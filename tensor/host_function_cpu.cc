#include "tensor/cpu_state.h"
#include "tensor/host_function.h"

namespace rigel {

void enqueue_host_function(StreamRef stream, const char* name, void (*function)(void*),
                           void* data) {
  enqueue_ordered_host_function(stream, name, nullptr, function, data);
}

void enqueue_ordered_host_function(StreamRef stream, const char* name, const void* order_key,
                                   void (*function)(void*), void* data) {
  const detail::StreamState& on = stream.state();
  simt::Command command(simt::Command::Kind::kHostFunction, name, simt::HostWork{function, data});
  command.order_key = order_key;
  detail::check(on.virtual_device->submit(*on.queue, command));
}

}  // namespace rigel
