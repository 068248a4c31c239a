#include "tensor/cuda_state.h"
#include "tensor/event.h"
#include "tensor/stream.h"

#include <utility>

namespace rigel {

Device& StreamRef::device() const {
  return *state_->device;
}

void StreamRef::synchronize() const {
  RIGEL_CUDA(cudaStreamSynchronize(state_->stream));
}

bool StreamRef::query() const {
  const cudaError_t error = cudaStreamQuery(state_->stream);
  if (error == cudaErrorNotReady) {
    return false;
  }
  RIGEL_CUDA(error);
  return true;
}

void StreamRef::wait(EventRef event) const {
  RIGEL_CUDA(cudaStreamWaitEvent(state_->stream, event.state().event, 0));
}

bool StreamRef::is_capturing() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  RIGEL_CUDA(cudaStreamIsCapturing(state_->stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

Stream::Stream(Device& device) : state_(std::make_unique<detail::StreamState>()) {
  device.make_current();
  state_->device = &device;
  RIGEL_CUDA(cudaStreamCreateWithFlags(&state_->stream, cudaStreamNonBlocking));
}

Stream::~Stream() {
  if (state_ != nullptr) {
    static_cast<void>(cudaStreamSynchronize(state_->stream));
    static_cast<void>(cudaStreamDestroy(state_->stream));
    static_cast<void>(cudaGetLastError());
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
