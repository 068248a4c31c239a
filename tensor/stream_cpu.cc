#include "tensor/cpu_state.h"
#include "tensor/event.h"
#include "tensor/stream.h"

#include <utility>

namespace rigel {

Device& StreamRef::device() const {
  return *state_->device;
}

void StreamRef::synchronize() const {
  detail::check(state_->virtual_device->synchronize(*state_->queue));
}

bool StreamRef::query() const {
  bool done = false;
  detail::check(state_->virtual_device->query(*state_->queue, &done));
  return done;
}

void StreamRef::wait(EventRef event) const {
  const auto moment = simt::Moment::from_word(event.state().moment.load());
  detail::check(state_->virtual_device->wait(*state_->queue, moment));
}

bool StreamRef::is_capturing() const {
  return state_->queue->capture() != nullptr;
}

Stream::Stream(Device& device) : state_(std::make_unique<detail::StreamState>()) {
  simt::VirtualDevice& virtual_device = device.state().device;
  *state_ = {&device, &virtual_device, virtual_device.take_queue()};
  RIGEL_CHECK(state_->queue != nullptr, "the virtual device has no stream left: {} are open", 255);
}

Stream::~Stream() {
  if (state_ != nullptr) {
    state_->virtual_device->return_queue(*state_->queue);
  }
}

Stream::Stream(Stream&&) noexcept = default;

Stream& Stream::operator=(Stream&& other) noexcept {
  Stream moved(std::move(other));
  std::swap(state_, moved.state_);
  return *this;
}

void Stream::wait(EventRef event) const {
  ref().wait(event);
}

}  // namespace rigel
