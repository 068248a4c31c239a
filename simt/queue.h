#pragma once

#include "simt/command.h"
#include "simt/device_fault.h"
#include "simt/parking.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

namespace simt {

class Capture;
class VirtualDevice;

/// When the commands of queues run.
enum class QueueMode : std::uint8_t {
  kThreaded,  // a thread for each queue: asynchrony and its races are real
  kEager,     // at the call: simplest to debug
  kLazy,      // only when something waits: a forgotten wait gives old data every time
  kNull,  // at the call, and only commands whose names are allowed; copies to the host give zeros: measures the host's own cost
};

/// The virtual device's stream: commands run in the order they were pushed, one at a time. Position p is reached when the
/// first p commands are done, so an event is nothing but a queue and a position.
///
/// Thread: `push` from any, one at a time a queue in eager and null mode; everything else from any.
/// Cost: a push copies the closure into a ring and touches no heap; it blocks while the ring is full.
class Queue {
 public:
  Queue(VirtualDevice& device, int id, QueueMode mode, std::size_t num_slots);
  /// Runs what was pushed, then ends the thread.
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  [[nodiscard]] int id() const { return id_; }
  [[nodiscard]] QueueMode mode() const { return mode_; }
  void push(const Command& command);

  /// The number of commands pushed so far: the position of "everything up to now".
  [[nodiscard]] std::uint64_t position() const { return pushed_.load(std::memory_order_seq_cst); }
  [[nodiscard]] bool reached(std::uint64_t position) const {
    return completed_.load(std::memory_order_seq_cst) >= position;
  }
  /// Blocks until `position` is reached; in lazy mode the caller runs the commands.
  void wait_for(std::uint64_t position);

  /// Whether a command failed since the last `take_fault`. Commands after a failed one are skipped until then.
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  DeviceFault take_fault();

  /// The capture that commands go to instead of running, or null. Owned by the device.
  [[nodiscard]] Capture* capture() const { return capture_.load(std::memory_order_acquire); }
  void set_capture(Capture* capture) { capture_.store(capture, std::memory_order_release); }

 private:
  void push_threaded(const Command& command);
  void push_lazy(const Command& command);
  bool try_store(const Command& command);
  void run_lazily(std::uint64_t position);
  void run_front();
  void run(Command& command);
  void fail(DeviceFault fault);
  void serve();

  VirtualDevice& device_;
  const int id_;
  const QueueMode mode_;
  const std::size_t num_slots_;
  std::unique_ptr<Command[]> slots_;
  std::atomic<Capture*> capture_{nullptr};
  SpinLock producers_;
  alignas(64) std::atomic<std::uint64_t> pushed_{0};
  alignas(64) std::atomic<std::uint64_t> completed_{0};
  Parking work_;
  Parking progress_;
  std::mutex lazy_runner_;
  std::atomic<bool> failed_{false};
  std::mutex fault_mutex_;
  DeviceFault fault_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace simt
