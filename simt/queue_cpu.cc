#include "simt/queue.h"
#include "simt/virtual_device.h"

#include <utility>

namespace simt {

Queue::Queue(VirtualDevice& device, int id, QueueMode mode, std::size_t num_slots)
    : device_(device), id_(id), mode_(mode), num_slots_(num_slots) {
  if (mode == QueueMode::kThreaded || mode == QueueMode::kLazy) {
    slots_ = std::make_unique<Command[]>(num_slots);
  }
  if (mode == QueueMode::kThreaded) {
    thread_ = std::thread([this] { serve(); });
  }
}

Queue::~Queue() {
  if (mode_ == QueueMode::kLazy) {
    run_lazily(position());
  }
  if (thread_.joinable()) {
    stopping_.store(true, std::memory_order_seq_cst);
    work_.wake_all();
    thread_.join();
  }
}

void Queue::push(const Command& command) {
  switch (mode_) {
    case QueueMode::kThreaded:
      return push_threaded(command);
    case QueueMode::kLazy:
      return push_lazy(command);
    case QueueMode::kEager:
    case QueueMode::kNull: {
      pushed_.fetch_add(1, std::memory_order_seq_cst);
      if (mode_ == QueueMode::kEager || device_.runs_in_null_mode(command)) {
        Command copy = command;
        run(copy);
      }
      completed_.fetch_add(1, std::memory_order_seq_cst);
      progress_.wake_all();
    }
  }
}

bool Queue::try_store(const Command& command) {
  const std::lock_guard lock(producers_);
  const std::uint64_t position = pushed_.load(std::memory_order_relaxed);
  if (position - completed_.load(std::memory_order_seq_cst) >= num_slots_) {
    return false;
  }
  slots_[position % num_slots_] = command;
  pushed_.store(position + 1, std::memory_order_seq_cst);
  return true;
}

void Queue::push_threaded(const Command& command) {
  while (!try_store(command)) {
    progress_.wait([this] { return position() - completed_.load() < num_slots_; });
  }
  work_.wake_all();
}

void Queue::push_lazy(const Command& command) {
  while (!try_store(command)) {
    run_lazily(completed_.load() + num_slots_ / 2);
  }
}

void Queue::wait_for(std::uint64_t position) {
  if (mode_ == QueueMode::kLazy) {
    run_lazily(position);
  } else {
    progress_.wait([this, position] { return reached(position); });
  }
}

void Queue::run_lazily(std::uint64_t position) {
  // Reached positions are not waited for, so two threads that run queues which wait for each other cannot block:
  // waits only name moments that were pushed before them.
  if (reached(position)) {
    return;
  }
  const std::lock_guard lock(lazy_runner_);
  while (!reached(position)) {
    run_front();
  }
}

void Queue::run_front() {
  const std::uint64_t front = completed_.load(std::memory_order_relaxed);
  run(slots_[front % num_slots_]);
  completed_.store(front + 1, std::memory_order_seq_cst);
  progress_.wake_all();
}

void Queue::run(Command& command) {
  const bool always_runs = command.kind == Command::Kind::kWait ||
                           command.kind == Command::Kind::kMark ||
                           command.kind == Command::Kind::kMemory;
  if (failed() && !always_runs) {
    return device_.skip(command);
  }
  DeviceFault fault;
  device_.run(command, fault);
  if (!fault.ok()) {
    fail(std::move(fault));
  }
}

void Queue::fail(DeviceFault fault) {
  const std::lock_guard lock(fault_mutex_);
  fault_ = std::move(fault);
  failed_.store(true, std::memory_order_release);
}

DeviceFault Queue::take_fault() {
  const std::lock_guard lock(fault_mutex_);
  failed_.store(false, std::memory_order_release);
  return std::exchange(fault_, DeviceFault{});
}

void Queue::serve() {
  while (true) {
    work_.wait([this] {
      return position() != completed_.load(std::memory_order_relaxed) || stopping_.load();
    });
    if (position() == completed_.load(std::memory_order_relaxed)) {
      return;
    }
    run_front();
  }
}

}  // namespace simt
