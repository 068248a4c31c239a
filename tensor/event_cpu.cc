#include "tensor/cpu_state.h"
#include "tensor/event.h"

#include <utility>

namespace rigel {

namespace {

std::unique_ptr<detail::EventState> make_state(Device& device, bool timed) {
  auto state = std::make_unique<detail::EventState>();
  state->device = &device.state().device;
  state->timed = timed;
  return state;
}

}  // namespace

void EventRef::record(StreamRef stream) const {
  const detail::StreamState& on = stream.state();
  if (state_->timed) {
    detail::check(on.virtual_device->submit(
        *on.queue,
        simt::Command(simt::Command::Kind::kMark, "event", simt::MarkWork{&state_->time_ns})));
  }
  simt::Moment moment;
  detail::check(on.virtual_device->record(*on.queue, &moment));
  state_->moment.store(moment.word());
}

bool EventRef::query() const {
  bool past = false;
  detail::check(state_->device->query(simt::Moment::from_word(state_->moment.load()), &past));
  return past;
}

void EventRef::synchronize() const {
  detail::check(state_->device->synchronize(simt::Moment::from_word(state_->moment.load())));
}

Event::Event(Device& device) : state_(make_state(device, false)) {}
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

TimedEvent::TimedEvent(Device& device) : state_(make_state(device, true)) {}

TimedEvent::~TimedEvent() {
  if (state_ != nullptr) {
    state_->device->wait_quietly(simt::Moment::from_word(state_->moment.load()));
  }
}

TimedEvent::TimedEvent(TimedEvent&&) noexcept = default;

TimedEvent& TimedEvent::operator=(TimedEvent&& other) noexcept {
  TimedEvent moved(std::move(other));
  std::swap(state_, moved.state_);
  return *this;
}

double TimedEvent::elapsed_us_since(const TimedEvent& start) const {
  synchronize();
  start.synchronize();
  return static_cast<double>(state_->time_ns - start.state_->time_ns) * 1e-3;
}

}  // namespace rigel
