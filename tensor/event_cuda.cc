#include "tensor/cuda_state.h"
#include "tensor/event.h"

#include <utility>

namespace rigel {
namespace {

std::unique_ptr<detail::EventState> make_state(Device& device, unsigned flags) {
  device.make_current();
  auto state = std::make_unique<detail::EventState>();
  RIGEL_CUDA(cudaEventCreateWithFlags(&state->event, flags));
  return state;
}

void destroy(const detail::EventState* state) {
  if (state != nullptr && cudaEventDestroy(state->event) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
  }
}

}  // namespace

void EventRef::record(StreamRef stream) const {
  RIGEL_CUDA(cudaEventRecord(state_->event, stream.state().stream));
}

bool EventRef::query() const {
  const cudaError_t error = cudaEventQuery(state_->event);
  if (error == cudaErrorNotReady) {
    return false;
  }
  RIGEL_CUDA(error);
  return true;
}

void EventRef::synchronize() const {
  RIGEL_CUDA(cudaEventSynchronize(state_->event));
}

Event::Event(Device& device) : state_(make_state(device, cudaEventDisableTiming)) {}
Event::~Event() {
  destroy(state_.get());
}
Event::Event(Event&&) noexcept = default;

Event& Event::operator=(Event&& other) noexcept {
  Event moved(std::move(other));
  std::swap(state_, moved.state_);
  return *this;
}

TimedEvent::TimedEvent(Device& device) : state_(make_state(device, cudaEventDefault)) {}
TimedEvent::~TimedEvent() {
  destroy(state_.get());
}
TimedEvent::TimedEvent(TimedEvent&&) noexcept = default;

TimedEvent& TimedEvent::operator=(TimedEvent&& other) noexcept {
  TimedEvent moved(std::move(other));
  std::swap(state_, moved.state_);
  return *this;
}

double TimedEvent::elapsed_us_since(const TimedEvent& start) const {
  float elapsed_ms = 0;
  RIGEL_CUDA(cudaEventElapsedTime(&elapsed_ms, start.state_->event, state_->event));
  return static_cast<double>(elapsed_ms) * 1e3;
}

}  // namespace rigel
