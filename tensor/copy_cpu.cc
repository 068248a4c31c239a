#include "tensor/copy.h"
#include "tensor/copy_check.h"
#include "tensor/cpu_state.h"

namespace rigel {
namespace {

void enqueue(StreamRef stream, void* target, const void* source, std::int64_t num_bytes,
             simt::CopyDirection direction) {
  const detail::StreamState& on = stream.state();
  detail::check(on.virtual_device->copy(
      *on.queue, {target, source, static_cast<std::size_t>(num_bytes), direction}));
}

}  // namespace

void copy(StreamRef stream, DeviceView target, ConstHostView source) {
  enqueue(stream, target.raw(), source.raw(), detail::bytes_to_copy(target, source),
          simt::CopyDirection::kHostToDevice);
}

void copy(StreamRef stream, HostView target, ConstDeviceView source) {
  enqueue(stream, target.raw(), source.raw(), detail::bytes_to_copy(target, source),
          simt::CopyDirection::kDeviceToHost);
}

void copy(StreamRef stream, DeviceView target, ConstDeviceView source) {
  enqueue(stream, target.raw(), source.raw(), detail::bytes_to_copy(target, source),
          simt::CopyDirection::kDeviceToDevice);
}

void fill_bytes(StreamRef stream, DeviceView target, std::uint8_t value) {
  const detail::StreamState& on = stream.state();
  detail::check(on.virtual_device->fill(
      *on.queue, {target.raw(), static_cast<std::size_t>(detail::bytes_to_fill(target)), value}));
}

}  // namespace rigel
