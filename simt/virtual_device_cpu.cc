#include "simt/virtual_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace simt {
namespace {

bool copies_to_host(const Command& command) {
  if (command.kind != Command::Kind::kCopy) {
    return false;
  }
  CopyWork work;
  std::memcpy(&work, command.closure, sizeof work);
  return work.direction == CopyDirection::kDeviceToHost;
}

}  // namespace

VirtualDevice::VirtualDevice(const VirtualDeviceOptions& options)
    : options_(options),
      memory_(options.memory_bytes, options.fill_garbage),
      pool_(std::max(1, options.num_threads)),
      executor_(pool_, options.executor) {}

VirtualDevice::~VirtualDevice() {
  // Queues wait for each other, so all of them drain before the first one goes.
  for (int id = 0; id < num_queues_; ++id) {
    queue_at(id).wait_for(queue_at(id).position());
  }
}

DeviceFault VirtualDevice::allocate(std::size_t num_bytes, void** address) {
  *address = nullptr;
  DeviceFault refused = refuse_in_capture("a device allocation");
  return refused.ok() ? memory_.allocate(num_bytes, address) : refused;
}

DeviceFault VirtualDevice::allocate_pinned(std::size_t num_bytes, void** address) {
  *address = nullptr;
  DeviceFault refused = refuse_in_capture("an allocation of pinned memory");
  return refused.ok() ? memory_.allocate_pinned(num_bytes, address) : refused;
}

DeviceFault VirtualDevice::free(void* address) {
  if (address == nullptr) {
    return {};
  }
  DeviceFault refused = refuse_in_capture("a free");
  if (!refused.ok()) {
    return refused;
  }
  std::unique_lock lock(queues_mutex_);
  const int num_queues = num_queues_;
  lock.unlock();
  for (int id = 0; id < num_queues; ++id) {
    queue_at(id).wait_for(queue_at(id).position());
  }
  return memory_.free(address);
}

Queue* VirtualDevice::take_queue() {
  const std::lock_guard lock(queues_mutex_);
  if (!idle_queues_.empty()) {
    Queue* queue = idle_queues_.back();
    idle_queues_.pop_back();
    return queue;
  }
  if (num_queues_ == kMaxQueues) {
    return nullptr;
  }
  const int id = num_queues_++;
  queues_[static_cast<std::size_t>(id)] =
      std::make_unique<Queue>(*this, id, options_.mode, options_.num_queue_slots);
  return &queue_at(id);
}

void VirtualDevice::return_queue(Queue& queue) {
  queue.wait_for(queue.position());
  static_cast<void>(queue.take_fault());
  // The queue stays: events may still name its positions.
  const std::lock_guard lock(queues_mutex_);
  idle_queues_.push_back(&queue);
}

DeviceFault VirtualDevice::submit(Queue& queue, const Command& command) {
  if (queue.capture() != nullptr) {
    return submit_captured(queue, command);
  }
  if (queue.failed()) {
    return queue.take_fault();
  }
  queue.push(command);
  return {};
}

DeviceFault VirtualDevice::copy(Queue& queue, const CopyWork& work) {
  if (work.num_bytes == 0) {
    return {};
  }
  const bool to_host = work.direction == CopyDirection::kDeviceToHost;
  const void* host_side = to_host ? work.target : work.source;
  // Null mode moves no bytes, so outside a capture it need not know (finding out takes a lock).
  const bool asks = options_.mode != QueueMode::kNull || queue.capture() != nullptr;
  const bool pageable = work.direction != CopyDirection::kDeviceToDevice && asks &&
                        !memory_.is_pinned(host_side, work.num_bytes);
  if (pageable) {
    DeviceFault refused = refuse_in_capture("a copy of pageable host memory", &queue);
    if (!refused.ok()) {
      return refused;
    }
  } else if (to_host && options_.fill_garbage && queue.capture() == nullptr &&
             options_.mode != QueueMode::kNull) {
    work.spoil_host_target();
  }
  DeviceFault fault = submit(queue, Command(Command::Kind::kCopy, "copy", work));
  if (!fault.ok()) {
    work.release_host_target();
  }
  if (pageable && fault.ok()) {
    queue.wait_for(queue.position());
    fault = queue.failed() ? queue.take_fault() : DeviceFault{};
  }
  return fault;
}

DeviceFault VirtualDevice::fill(Queue& queue, const FillWork& work) {
  if (work.num_bytes == 0) {
    return {};
  }
  return submit(queue, Command(Command::Kind::kFill, "fill", work));
}

DeviceFault VirtualDevice::launch(Queue& queue, GraphProgram& program) {
  if (queue.capture() != nullptr) {
    return refuse_in_capture("the launch of a graph", &queue);
  }
  const Moment last = program.last_launch();
  if (last.queue_id() != queue.id()) {
    DeviceFault fault = wait(queue, last);
    if (!fault.ok()) {
      return fault;
    }
  }
  if (queue.failed()) {
    return queue.take_fault();
  }
  if (options_.fill_garbage && options_.mode != QueueMode::kNull) {
    program.spoil_host_targets();
  }
  DeviceFault fault = submit(queue, Command(Command::Kind::kGraph, "graph", ReplayWork{&program}));
  program.set_last_launch(Moment::of_queue(queue.id(), queue.position()));
  return fault;
}

bool VirtualDevice::runs_in_null_mode(const Command& command) const {
  if (command.kind == Command::Kind::kGraph || copies_to_host(command)) {
    return true;
  }
  return is_null_mode_name(command.name);
}

bool VirtualDevice::is_null_mode_name(const char* name) const {
  return std::any_of(
      options_.null_mode_names.begin(), options_.null_mode_names.end(),
      [&](const std::string& known) { return std::strcmp(known.c_str(), name) == 0; });
}

void VirtualDevice::run(Command& command, DeviceFault& fault) {
  command.run(command.closure, *this, fault);
}

void VirtualDevice::skip(Command& command) {
  if (command.kind == Command::Kind::kCopy) {
    CopyWork work;
    std::memcpy(&work, command.closure, sizeof work);
    work.release_host_target();
  } else if (command.kind == Command::Kind::kGraph) {
    ReplayWork work;
    std::memcpy(&work, command.closure, sizeof work);
    work.program->release_host_targets();
  }
}

}  // namespace simt
