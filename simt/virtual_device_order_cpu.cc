// Events, waiting and capture: everything of the virtual device that is about order.

#include "simt/virtual_device.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

namespace simt {

DeviceFault VirtualDevice::record(Queue& queue, Moment* moment) {
  if (queue.capture() == nullptr) {
    *moment = Moment::of_queue(queue.id(), queue.position());
    return {};
  }
  const std::lock_guard lock(captures_mutex_);
  Capture& capture = *queue.capture();
  if (!capture.lost().ok()) {
    return {FaultCode::kStreamCaptureInvalidated, capture.lost().message};
  }
  *moment = Moment::of_capture(capture.serial(), capture.mark(queue));
  return {};
}

DeviceFault VirtualDevice::wait(Queue& queue, Moment moment) {
  if (moment.captured() || queue.capture() != nullptr) {
    return wait_captured(queue, moment);
  }
  Queue& other = queue_at(moment.queue_id());
  if (&other == &queue || moment.position() == 0 || other.reached(moment.position())) {
    return {};
  }
  return submit(queue, Command(Command::Kind::kWait, "wait", WaitWork{&other, moment.position()}));
}

DeviceFault VirtualDevice::wait_captured(Queue& queue, Moment moment) {
  const std::lock_guard lock(captures_mutex_);
  Capture* own = queue.capture();
  if (own != nullptr && !own->lost().ok()) {
    return {FaultCode::kStreamCaptureInvalidated, own->lost().message};
  }
  if (!moment.captured()) {
    return lose(*own, FaultCode::kStreamCaptureIsolation,
                "a capturing stream waits for an event that was recorded outside its capture");
  }
  Capture* other = find_capture(moment.capture_serial());
  if (other == nullptr) {
    DeviceFault fault{FaultCode::kCapturedEvent,
                      "the event was last recorded in a capture that is over"};
    return own == nullptr ? fault : lose(*own, FaultCode::kStreamCaptureIsolation, fault.message);
  }
  if (own != nullptr && own != other) {
    const char* message = "the wait would merge two captures";
    static_cast<void>(lose(*other, FaultCode::kStreamCaptureMerge, message));
    return lose(*own, FaultCode::kStreamCaptureMerge, message);
  }
  other->depend(queue, moment.node());
  queue.set_capture(other);
  return {};
}

DeviceFault VirtualDevice::query(Moment moment, bool* reached) {
  *reached = false;
  DeviceFault refused = refuse_in_capture("the query of an event");
  if (!refused.ok()) {
    return refused;
  }
  if (moment.captured()) {
    return {FaultCode::kCapturedEvent, "query of an event that was last recorded in a capture"};
  }
  if (moment.position() == 0) {
    *reached = true;
    return {};
  }
  Queue& queue = queue_at(moment.queue_id());
  *reached = queue.reached(moment.position());
  if (!*reached && queue.mode() == QueueMode::kLazy) {
    queue.wait_for(moment.position());  // A loop of queries must come to an end here too.
  }
  return *reached && queue.failed() ? queue.take_fault() : DeviceFault{};
}

DeviceFault VirtualDevice::query(Queue& queue, bool* reached) {
  *reached = false;
  DeviceFault refused = refuse_in_capture("the query of a stream", &queue);
  return refused.ok() ? query(Moment::of_queue(queue.id(), queue.position()), reached) : refused;
}

DeviceFault VirtualDevice::synchronize(Moment moment) {
  DeviceFault refused = refuse_in_capture("the synchronisation with an event");
  if (!refused.ok()) {
    return refused;
  }
  if (moment.captured()) {
    return {FaultCode::kCapturedEvent,
            "synchronisation with an event that was last recorded in a capture"};
  }
  if (moment.position() == 0) {
    return {};
  }
  Queue& queue = queue_at(moment.queue_id());
  queue.wait_for(moment.position());
  return queue.failed() ? queue.take_fault() : DeviceFault{};
}

DeviceFault VirtualDevice::synchronize(Queue& queue) {
  DeviceFault refused = refuse_in_capture("the synchronisation of a stream", &queue);
  return refused.ok() ? synchronize(Moment::of_queue(queue.id(), queue.position())) : refused;
}

DeviceFault VirtualDevice::synchronize_all() {
  DeviceFault result = refuse_in_capture("the synchronisation of the device");
  if (!result.ok()) {
    return result;
  }
  std::unique_lock lock(queues_mutex_);
  const int num_queues = num_queues_;
  lock.unlock();
  for (int id = 0; id < num_queues; ++id) {
    queue_at(id).wait_for(queue_at(id).position());
  }
  for (int id = 0; id < num_queues && result.ok(); ++id) {
    if (queue_at(id).failed()) {
      result = queue_at(id).take_fault();
    }
  }
  return result;
}

void VirtualDevice::wait_quietly(Moment moment) {
  if (!moment.captured() && moment.position() != 0) {
    queue_at(moment.queue_id()).wait_for(moment.position());
  }
}

DeviceFault VirtualDevice::begin_capture(Queue& queue) {
  const std::lock_guard lock(captures_mutex_);
  if (queue.capture() != nullptr) {
    return lose(*queue.capture(), FaultCode::kStreamCaptureUnsupported,
                "a capture began on a stream that is capturing");
  }
  captures_.push_back(std::make_unique<Capture>(queue, next_capture_serial_++));
  queue.set_capture(captures_.back().get());
  num_captures_.fetch_add(1);
  return {};
}

DeviceFault VirtualDevice::end_capture(Queue& queue, CommandGraph* graph) {
  const std::lock_guard lock(captures_mutex_);
  Capture* capture = queue.capture();
  if (capture == nullptr) {
    return {FaultCode::kStreamCaptureUnmatched, "no capture began on the stream"};
  }
  if (&capture->origin() != &queue) {
    return lose(*capture, FaultCode::kStreamCaptureUnmatched,
                "the capture ends on a stream other than the one it began on");
  }
  if (capture->owner() != std::this_thread::get_id()) {
    return lose(*capture, FaultCode::kStreamCaptureWrongThread,
                "the capture ends in a thread other than the one it began in");
  }
  DeviceFault fault;
  if (!capture->lost().ok()) {
    fault = {FaultCode::kStreamCaptureInvalidated, capture->lost().message};
  } else if (capture->find_unjoined() >= 0) {
    fault = {FaultCode::kStreamCaptureUnjoined, "a branch of the capture was not joined"};
  } else {
    *graph = capture->take_graph();
  }
  for (Queue* part : capture->queues()) {
    part->set_capture(nullptr);
  }
  std::erase_if(captures_, [&](const auto& known) { return known.get() == capture; });
  num_captures_.fetch_sub(1);
  return fault;
}

DeviceFault VirtualDevice::submit_captured(Queue& queue, const Command& command) {
  const std::lock_guard lock(captures_mutex_);
  Capture& capture = *queue.capture();
  if (!capture.lost().ok()) {
    return {FaultCode::kStreamCaptureInvalidated, capture.lost().message};
  }
  capture.add(queue, command);
  return {};
}

DeviceFault VirtualDevice::refuse_in_capture(const char* call, Queue* queue) {
  if (num_captures_.load(std::memory_order_acquire) == 0) {
    return {};
  }
  const std::lock_guard lock(captures_mutex_);
  DeviceFault refused;
  for (const auto& capture : captures_) {
    const bool own = capture->owner() == std::this_thread::get_id();
    if (own || (queue != nullptr && queue->capture() == capture.get())) {
      refused = lose(*capture, FaultCode::kStreamCaptureUnsupported,
                     std::string(call) + " during a capture");
    }
  }
  return refused;
}

DeviceFault VirtualDevice::lose(Capture& capture, FaultCode code, std::string message) {
  DeviceFault fault{code, std::move(message)};
  capture.invalidate(fault);
  return fault;
}

Capture* VirtualDevice::find_capture(std::uint32_t serial) {
  const auto found = std::find_if(captures_.begin(), captures_.end(), [&](const auto& capture) {
    return capture->serial() == (serial & 0x7FFFFFFFu);
  });
  return found == captures_.end() ? nullptr : found->get();
}

}  // namespace simt
